//! The iothread of each queue, asked of QEMU by QMP through libvirt: nothing in /proc tells it.

use nearmetal_hypervisor::Hypervisor;
use nearmetal_place::Placement;
use serde_json::{Value, json};

use super::{Check, CheckKind, ObservedQueues};

/// What it costs to ask.
pub const TAINTS: &str =
    "libvirt marks the running guest as tainted (custom-monitor) in its log, until the guest stops";

/// A disk has as many queues as vCPUs at most; more than that is no answer of QEMU.
const MOST: u64 = 4096;

/// Asks QEMU. Questions alone: nothing is changed.
pub(super) fn ask(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    placement: &Placement,
) -> Result<Vec<ObservedQueues>, String> {
    let answer = hypervisor.monitor(name, &json!({"execute": "query-iothreads"})).map_err(|error| error.to_string())?;
    let threads = threads(&answer).ok_or("cannot understand QEMU's list of iothreads")?;
    let mut of_property = |device: &str, property: &str| {
        let path = format!("/machine/peripheral/{device}");
        let command = json!({"execute": "qom-get", "arguments": {"path": path, "property": property}});
        hypervisor.monitor(name, &command).map_err(|error| error.to_string())
    };
    let of_disk = |disk: &nearmetal_place::DiskPlacement| ObservedQueues {
        target: disk.target.clone(),
        iothreads: device(&disk.target)
            .ok_or_else(|| "it is not a virtio-blk disk".to_owned())
            .and_then(|device| queues(&device, &mut of_property)),
        threads: threads.clone(),
    };
    Ok(placement.disks.iter().map(of_disk).collect())
}

/// libvirt's name of a virtio disk's device: by the number its target name stands for, `vda` for 0, `vdaa` for 26.
fn device(target: &str) -> Option<String> {
    let letters = target.strip_prefix("vd").filter(|letters| (1..=3).contains(&letters.len()))?;
    let number = letters.bytes().try_fold(0u32, |number, letter| {
        letter.is_ascii_lowercase().then(|| number * 26 + u32::from(letter - b'a') + 1)
    })?;
    Some(format!("virtio-disk{}", number - 1))
}

fn threads(answer: &Value) -> Option<Vec<(String, u32)>> {
    let one = |value: &Value| {
        let thread = u32::try_from(value.get("thread-id")?.as_u64()?).ok()?;
        Some((value.get("id")?.as_str()?.to_owned(), thread))
    };
    answer.as_array()?.iter().map(one).collect()
}

fn queues(
    device: &str,
    of_property: &mut dyn FnMut(&str, &str) -> Result<Value, String>,
) -> Result<Vec<Option<String>>, String> {
    let number = of_property(device, "num-queues")?.as_u64().filter(|number| *number <= MOST);
    let number = number.ok_or("cannot understand QEMU's number of queues")? as usize;
    // QEMU 9.0 and later; without a mapping it is empty, or the property is not there.
    if let Ok(mapping) = of_property(device, "iothread-vq-mapping") {
        if let Some(entries) = mapping.as_array().filter(|entries| !entries.is_empty()) {
            return mapped(entries, number).ok_or_else(|| "cannot understand QEMU's mapping of queues".to_owned());
        }
    }
    let link = of_property(device, "iothread")?;
    let path = link.as_str().ok_or("cannot understand QEMU's iothread of the disk")?;
    // `/objects/iothread1`, or nothing.
    let name = path.rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned);
    Ok(vec![name; number])
}

/// `[{"iothread": "iothread1", "vqs": [0]}, …]`; without `vqs` in any of them they take turns (QEMU, virtio-blk).
fn mapped(entries: &[Value], number: usize) -> Option<Vec<Option<String>>> {
    let mut all = vec![None; number];
    for (at, entry) in entries.iter().enumerate() {
        let name = entry.get("iothread")?.as_str()?.to_owned();
        match entry.get("vqs").and_then(Value::as_array).filter(|queues| !queues.is_empty()) {
            Some(queues) => {
                for queue in queues {
                    *all.get_mut(usize::try_from(queue.as_u64()?).ok()?)? = Some(name.clone());
                }
            }
            None => all.iter_mut().skip(at).step_by(entries.len()).for_each(|own| *own = Some(name.clone())),
        }
    }
    Some(all)
}

/// One check for each disk: the iothread of each of its queues.
pub(super) fn judge(placement: &Placement, seen: Option<&Result<Vec<ObservedQueues>, String>>) -> Vec<Check> {
    let Some(seen) = seen else { return Vec::new() };
    let place = format!("QMP; {TAINTS}");
    let checks = placement.disks.iter().map(|disk| {
        let subject = format!("queues of disk {}", disk.target);
        let names: Vec<Option<String>> = match disk.iothreads {
            Some(count) => (1..=count).map(|number| Some(format!("iothread{number}"))).collect(),
            None => vec![disk.iothread.map(|number| format!("iothread{number}"))],
        };
        let wanted = match (names.as_slice(), disk.iothreads) {
            ([one], _) => format!("all served by {}", one.as_deref().unwrap_or("QEMU's main loop")),
            (_, count) => format!("served by iothreads 1 to {} in turns", count.unwrap_or_default()),
        };
        let own = seen.as_ref().map_err(Clone::clone).and_then(|all| {
            let own = all.iter().find(|own| own.target == disk.target).ok_or("not asked (--deep asks)")?;
            Ok((own, own.iothreads.as_ref().map_err(Clone::clone)?))
        });
        match own {
            Err(why) => Check::cannot_tell(CheckKind::Queue, subject, wanted, why),
            Ok((own, queues)) => {
                let thread =
                    |name: &str| own.threads.iter().find(|(other, _)| other == name).map(|(_, thread)| *thread);
                let one = |(queue, iothread): (usize, &Option<String>)| match iothread.as_deref() {
                    None => format!("queue {queue}: main loop"),
                    Some(name) => {
                        let id = thread(name).map_or_else(|| "no such thread".to_owned(), |id| format!("thread {id}"));
                        format!("queue {queue}: {name} ({id})")
                    }
                };
                let found: Vec<String> = queues.iter().enumerate().map(one).collect();
                let equal =
                    !queues.is_empty() && queues.iter().zip(names.iter().cycle()).all(|(own, name)| own == name);
                Check::compared(CheckKind::Queue, subject, wanted, found.join(", "), equal)
            }
        }
        .at(place.clone())
    });
    checks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::stage;

    #[test]
    fn targets_are_numbered_as_libvirt_does() {
        for (target, name) in [("vda", "virtio-disk0"), ("vdz", "virtio-disk25"), ("vdaa", "virtio-disk26")] {
            assert_eq!(device(target).as_deref(), Some(name));
        }
        for junk in ["sda", "vd", "vdA", "vdaaaa", "vd1"] {
            assert_eq!(device(junk), None, "{junk}");
        }
    }

    fn asked(answer: fn(&str) -> Option<Value>) -> Vec<Check> {
        let mut hypervisor = nearmetal_hypervisor::Fake::new("").with_running_domain(&stage::xml(""));
        hypervisor.on_monitor(move |_, command| {
            let text = command.to_string();
            answer(&text).ok_or(nearmetal_hypervisor::HypervisorError::Protocol { reason: text })
        });
        let placement = stage::placement();
        let seen = ask(&mut hypervisor, "web1", &placement);
        judge(&placement, Some(&seen))
    }

    #[test]
    fn each_queue_is_told_with_its_thread() {
        let threads = || json!([{"id": "iothread1", "thread-id": 4702, "poll-max-ns": 32768}]);
        let checks = asked(|command| match command {
            text if text.contains("query-iothreads") => Some(json!([{"id": "iothread1", "thread-id": 4702}])),
            text if text.contains("num-queues") => Some(json!(2)),
            text if text.contains("virtio-disk0") && text.contains("\"iothread\"") => Some(json!("/objects/iothread1")),
            _ => None,
        });
        let found = "queue 0: iothread1 (thread 4702), queue 1: iothread1 (thread 4702)";
        assert_eq!((checks[0].found.as_deref(), &checks[0].outcome), (Some(found), &super::super::Outcome::Ok));
        assert!(checks[0].place.as_deref().unwrap().contains("tainted"), "{checks:?}");
        assert_eq!(super::threads(&threads()), Some(vec![("iothread1".to_owned(), 4702)]));
        // Served by the main loop, and not to be asked at all.
        let moved = asked(|command| match command {
            text if text.contains("query-iothreads") => Some(json!([])),
            text if text.contains("num-queues") => Some(json!(1)),
            text if text.contains("iothread-vq-mapping") => Some(json!([])),
            _ => Some(json!("")),
        });
        assert_eq!(
            (moved[0].found.as_deref(), &moved[0].outcome),
            (Some("queue 0: main loop"), &super::super::Outcome::Mismatch)
        );
        let silent = asked(|_| None);
        assert!(matches!(silent[0].outcome, super::super::Outcome::CannotTell { .. }), "{silent:?}");
    }

    #[test]
    fn queues_that_iothreads_take_in_turns_are_compared_each() {
        let mut placement = stage::placement();
        (placement.disks[0].iothread, placement.disks[0].iothreads) = (None, Some(2));
        let seen = |numbers: [u32; 3]| {
            let iothreads = Ok(numbers.map(|number| Some(format!("iothread{number}"))).to_vec());
            let target = placement.disks[0].target.clone();
            judge(&placement, Some(&Ok(vec![ObservedQueues { target, iothreads, threads: Vec::new() }]))).remove(0)
        };
        assert_eq!(seen([1, 2, 1]).outcome, super::super::Outcome::Ok);
        assert_eq!(seen([1, 1, 1]).outcome, super::super::Outcome::Mismatch);
        assert!(seen([1, 1, 1]).planned.contains("iothreads 1 to 2 in turns"), "{:?}", seen([1, 1, 1]));
    }

    #[test]
    fn mappings_are_read_as_qemu_prints_them() {
        let two = |text: &str, number| mapped(serde_json::from_str::<Value>(text).unwrap().as_array().unwrap(), number);
        let (one, other) = (Some("iothread1".to_owned()), Some("iothread2".to_owned()));
        let text = r#"[{"iothread":"iothread1","vqs":[0]},{"iothread":"iothread2","vqs":[1]}]"#;
        assert_eq!(two(text, 2), Some(vec![one.clone(), other.clone()]));
        let turns = r#"[{"iothread":"iothread1"},{"iothread":"iothread2"}]"#;
        assert_eq!(two(turns, 3), Some(vec![one.clone(), other, one]));
        for junk in [r#"[{}]"#, r#"[{"iothread":"a","vqs":[9]}]"#, r#"[{"iothread":"a","vqs":["x"]}]"#] {
            assert_eq!(two(junk, 2), None, "{junk}");
        }
    }
}
