//! Queues and interrupts of an NVMe drive's virtual functions, by nvme-cli.
//!
//! NVM Express Base Specification, Virtualization Enhancements: a drive (the primary controller) has flexible resources,
//! deals them to its virtual functions (secondary controllers) while those are offline, and then sets them online. Removing
//! the functions takes all of it back.

use serde_json::Value;

use crate::ChangeError;
use crate::device_state::NvmeResources;
use crate::kernel::Kernel;

/// Actions of the Virtualization Management command.
const OFFLINE: &str = "7";
const ASSIGN: &str = "8";
const ONLINE: &str = "9";

/// Resource types of that command.
const QUEUES: &str = "0";
const INTERRUPTS: &str = "1";

/// Without an I/O queue beside the admin queue a controller is of no use.
pub(crate) const LEAST_QUEUES: u32 = 2;

/// A virtual function as its drive lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Secondary {
    /// Its controller's id.
    pub(super) controller: u32,
    /// Number of the virtual function, from 0.
    pub(super) number: usize,
    pub(super) resources: NvmeResources,
}

/// What a drive can deal out of one kind of resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flexible {
    /// All that is flexible.
    total: u32,
    /// What the drive keeps of it for itself.
    own: u32,
    /// The most for one function.
    most: u32,
    /// In steps of so many.
    step: u32,
}

pub(super) fn secondaries(kernel: &dyn Kernel, controller: &str) -> Result<Vec<Secondary>, ChangeError> {
    let device = format!("/dev/{controller}");
    let document = ask(kernel, &["list-secondary", &device, "--output-format=json"])?;
    let list = document["secondary-controllers"].as_array();
    let list = list.ok_or_else(|| no_use(&format!("nvme list-secondary {device}")))?;
    Ok(list.iter().filter_map(secondary).collect())
}

fn secondary(entry: &Value) -> Option<Secondary> {
    let number = |name: &str| entry[name].as_u64().and_then(|number| u32::try_from(number).ok());
    let resources = NvmeResources {
        queues: number("num-virtual-queues")?,
        interrupts: number("num-virtual-interrupts")?,
        online: number("secondary-controller-state")? & 1 == 1,
    };
    // Numbers of virtual functions begin with 1 there.
    let place = number("virtual-function-number")?.checked_sub(1)?;
    Some(Secondary { controller: number("secondary-controller-identifier")?, number: place as usize, resources })
}

/// What each of so many virtual functions gets: equal parts of what is flexible, no more than one may have.
pub(super) fn fair_share(kernel: &dyn Kernel, controller: &str, count: u32) -> Result<NvmeResources, ChangeError> {
    let device = format!("/dev/{controller}");
    let document = ask(kernel, &["primary-ctrl-caps", &device, "--output-format=json"])?;
    let number = |name: &str| {
        let number = document[name].as_u64().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| no_use(&format!("nvme primary-ctrl-caps {device}")))
    };
    let flexible = |kind: &str| -> Result<Flexible, ChangeError> {
        let field = |name: &str| number(&format!("{kind}{name}"));
        Ok(Flexible { total: field("frt")?, own: field("rfap")?, most: field("frsm")?, step: field("gran")? })
    };
    let (queues, interrupts) = (flexible("vq")?, flexible("vi")?);
    let short = |what: &str, flexible: Flexible, least: u32| {
        ChangeError::Kernel(format!(
            "`{controller}` has {} flexible {what} and keeps {} of them for itself; {count} virtual functions need \
             {least} each: ask for fewer",
            flexible.total, flexible.own
        ))
    };
    let share = NvmeResources { queues: queues.share(count), interrupts: interrupts.share(count), online: true };
    if share.queues < LEAST_QUEUES {
        return Err(short("queues", queues, LEAST_QUEUES));
    }
    if share.interrupts < 1 {
        return Err(short("interrupts", interrupts, 1));
    }
    Ok(share)
}

impl Flexible {
    fn share(self, count: u32) -> u32 {
        let each = self.total.saturating_sub(self.own).checked_div(count).unwrap_or(0).min(self.most);
        each - each % self.step.max(1)
    }
}

/// Brings one virtual function from what it has to what is wanted.
pub(super) fn deal(
    kernel: &dyn Kernel,
    controller: &str,
    now: Secondary,
    wanted: NvmeResources,
) -> Result<(), ChangeError> {
    let (device, id) = (format!("/dev/{controller}"), format!("--cntlid={}", now.controller));
    let manage = |more: &[String]| {
        let mut arguments = vec!["virt-mgmt", &device, &id];
        arguments.extend(more.iter().map(String::as_str));
        kernel.run("nvme", &arguments).map(drop)
    };
    let state = |action: &str| [format!("--act={action}")];
    let assign = |kind: &str, count: u32| [format!("--rt={kind}"), format!("--nr={count}"), format!("--act={ASSIGN}")];
    let same = (now.resources.queues, now.resources.interrupts) == (wanted.queues, wanted.interrupts);
    if now.resources.online && !(same && wanted.online) {
        manage(&state(OFFLINE))?;
    }
    if !same {
        manage(&assign(QUEUES, wanted.queues))?;
        manage(&assign(INTERRUPTS, wanted.interrupts))?;
    }
    if wanted.online && !(same && now.resources.online) {
        manage(&state(ONLINE))?;
    }
    Ok(())
}

fn ask(kernel: &dyn Kernel, arguments: &[&str]) -> Result<Value, ChangeError> {
    let text = kernel.run("nvme", arguments)?;
    serde_json::from_str(&text).map_err(|_| no_use(&format!("nvme {}", arguments.join(" "))))
}

fn no_use(command: &str) -> ChangeError {
    ChangeError::Kernel(format!("`{command}` printed nothing this version understands (nvme-cli 2 is known to work)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_equal_and_in_steps() {
        let share = |total, own, most, step, count| Flexible { total, own, most, step }.share(count);
        assert_eq!((share(8, 0, 2, 1, 4), share(8, 0, 2, 1, 1), share(8, 2, 8, 1, 4)), (2, 2, 1));
        assert_eq!((share(64, 0, 16, 4, 5), share(64, 0, 16, 0, 5), share(8, 9, 2, 1, 4)), (12, 12, 0));
        assert_eq!(share(8, 0, 2, 1, 0), 0);
    }

    #[test]
    fn entries_without_a_number_are_none() {
        let entry = serde_json::json!({"secondary-controller-identifier": 3, "secondary-controller-state": 1,
            "virtual-function-number": 2, "num-virtual-queues": 2, "num-virtual-interrupts": 1});
        let found = secondary(&entry).unwrap();
        assert_eq!((found.controller, found.number, found.resources.online), (3, 1, true));
        for field in ["virtual-function-number", "num-virtual-queues", "secondary-controller-state"] {
            let mut broken = entry.clone();
            broken[field] = Value::from("x");
            assert_eq!(secondary(&broken), None, "{field}");
        }
        let mut broken = entry;
        broken["virtual-function-number"] = Value::from(0);
        assert_eq!(secondary(&broken), None);
    }
}
