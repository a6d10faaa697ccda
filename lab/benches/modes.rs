//! What counting costs a lab: the same boot, disk work and memory work in labs that count nothing, work, and locality, in turns.
//! Prints a table of ratios and writes target/bench/lab.json. `./dev bench lab [ROUNDS]`; a round takes some two minutes.
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::path::Path;
use std::time::Instant;

use nearmetal_host::files;
use nearmetal_lab::machine::Count;
use nearmetal_lab::{Command, Lab, Places, Silent, UpOptions};
use nearmetal_stats::{Pair, ratio};

/// Rounds where none are asked for.
const ROUNDS: usize = 6;
const CONFIDENCE: f64 = 0.95;
const NAME: &str = "bench-modes";
/// What a lab counts in each arm; the first is what the others are compared with.
const MODES: [(&str, Option<Count>); 3] =
    [("nothing", None), ("work", Some(Count::Work)), ("locality", Some(Count::Locality))];
/// Each with a fixed amount of work.
const WORK: [(&str, &str); 2] = [
    (
        "20000 random requests of 4 KiB",
        "fio --name=io --filename=/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2 --direct=1 --rw=randrw --bs=4k --iodepth=32 \
         --ioengine=libaio --number_ios=20000 --norandommap --output=/dev/null",
    ),
    ("MD5 of 256 MiB", "head -c 256M /dev/zero | md5sum > /dev/null"),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(ROUNDS);
    // By quantity, then by mode: seconds of each round.
    let quantities = ["boot", "processor time of a boot"].into_iter().chain(WORK.map(|(name, _)| name));
    let mut seconds: Vec<(&str, [Vec<f64>; 3])> = quantities.map(|name| (name, Default::default())).collect();
    for round in 0..rounds {
        for turn in 0..MODES.len() {
            // Each mode comes first as often as last.
            let mode = (round + turn) % MODES.len();
            for (quantity, value) in seconds.iter_mut().zip(once(MODES[mode].1)?) {
                quantity.1[mode].push(value);
            }
        }
    }
    println!("{:32} {:>10} {:>10} {:>8} {:>18}", "", "counting", "median", "ratio", "95 % interval");
    let mut records = Vec::new();
    for (quantity, modes) in &seconds {
        for ((name, _), values) in MODES.iter().zip(modes) {
            let pairs: Vec<Pair> = values
                .iter()
                .zip(&modes[0])
                .map(|(subject, reference)| Pair { subject: *subject, reference: *reference })
                .collect();
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let median = sorted[sorted.len() / 2];
            let found = ratio(&pairs, CONFIDENCE, 1).ok().filter(|_| *name != MODES[0].0);
            let (ratio, interval) = found.as_ref().map_or_else(Default::default, |found| {
                (format!("{:.3}", found.ratio), format!("{:.3} to {:.3}", found.student_t.low, found.student_t.high))
            });
            println!("{quantity:32} {name:>10} {median:>8.2} s {ratio:>8} {interval:>18}");
            records.push(serde_json::json!({
                "what": quantity, "counting": name, "unit": "s", "seconds": values, "median": median,
                "ratio": found.as_ref().map(|found| found.ratio),
                "interval": found.as_ref().map(|found| [found.student_t.low, found.student_t.high]),
            }));
        }
    }
    let record = serde_json::json!({ "schema": "nearmetal.bench.lab/1", "rounds": rounds, "cases": records });
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    files::create_dir_all(&folder)?;
    files::write(&folder.join("lab.json"), serde_json::to_string_pretty(&record)?)?;
    Ok(())
}

/// Seconds of everything in one lab, in the order of the table.
fn once(count: Option<Count>) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let options = UpOptions { count, ..UpOptions::new(NAME.parse()?) };
    let lab = Lab::up(&Places::standard(), &options, &mut Silent)?;
    let boot = lab.boot_times().ok_or("a lab that is up has boot times")?;
    let mut seconds = vec![boot.libvirt_seconds, boot.processor_seconds];
    for (name, script) in WORK {
        let clock = Instant::now();
        let output = lab.exec(&Command::shell(script))?;
        if !output.success() {
            return Err(format!("{name}: {}", output.text()).into());
        }
        seconds.push(clock.elapsed().as_secs_f64());
    }
    lab.down()?;
    Ok(seconds)
}
