//! Damages sound inputs of every parser, millions of times, and expects each to return.
//!
//! `./dev fuzz [COUNT] [NAME]`: COUNT inputs for each parser (default 100000), parsers whose name contains NAME. The same
//! COUNT gives the same inputs on every machine; a panic prints the input that caused it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people who change a parser")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use nearmetal_host::fuzzing::{Target, targets};

/// Pieces that mean something to one parser or another.
const WORDS: [&[u8]; 24] = [
    b"0",
    b"1",
    b"-1",
    b"-",
    b",",
    b":",
    b";",
    b"\n",
    b"\t",
    b" ",
    b"\0",
    b"/",
    b"=",
    b"0x",
    b"ffffffff",
    b"4294967295",
    b"18446744073709551616",
    b"65535",
    b"65536",
    b"(",
    b")",
    b"[",
    b"]",
    b"\xff\xfe",
];

/// xorshift64*: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let filter = arguments.next().unwrap_or_default();
    let mut total = 0;
    let mut failed = false;
    for target in targets().into_iter().filter(|target| target.name.contains(&filter)) {
        let start = Instant::now();
        match fuzz(&target, count) {
            Ok(()) => println!("{:24} {count:>10} inputs  {:8.1} s", target.name, start.elapsed().as_secs_f64()),
            Err(input) => {
                eprintln!("{}: failed on {:?}", target.name, String::from_utf8_lossy(&input));
                failed = true;
            }
        }
        total += count;
    }
    println!("{:24} {total:>10} inputs", "all");
    ExitCode::from(u8::from(failed))
}

/// The input that made the parser panic, if one did.
fn fuzz(target: &Target, count: u64) -> Result<(), Vec<u8>> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut input = target.seed.clone();
    for _ in 0..count {
        // Damage adds up, until it is time to begin anew.
        if random.below(8) == 0 || input.len() > 4 * target.seed.len() + 64 {
            input.clone_from(&target.seed);
        }
        for _ in 0..=random.below(3) {
            mutate(&mut input, &mut random);
        }
        if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
            return Err(input);
        }
    }
    Ok(())
}

fn mutate(input: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(input.len() + 1);
    match random.below(6) {
        0 if at < input.len() => input[at] ^= 1 << random.below(7),
        1 if at < input.len() => input[at] = random.next() as u8,
        2 => input.truncate(at),
        3 => drop(input.drain(at..(at + random.below(8)).min(input.len()))),
        4 => {
            let piece = input[at..(at + random.below(16)).min(input.len())].to_vec();
            input.splice(at..at, piece);
        }
        _ => drop(input.splice(at..at, WORDS[random.below(WORDS.len())].iter().copied())),
    }
}
