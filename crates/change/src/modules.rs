//! Kernel modules: which are loaded, and whether something uses them.

use nearmetal_units::PciAddress;

use crate::ChangeError;
use crate::kernel::{Kernel, required};

const LIST: &str = "/proc/modules";

/// Whether a module is loaded.
pub(crate) fn is_loaded(kernel: &dyn Kernel, module: &str) -> Result<bool, ChangeError> {
    Ok(users(kernel, module)?.is_some())
}

/// How many hold a loaded module; `None` if it is not loaded. Each line: name, size, number of users, their names, ….
fn users(kernel: &dyn Kernel, module: &str) -> Result<Option<u64>, ChangeError> {
    // The kernel writes underscores, modprobe takes both.
    let name = module.replace('-', "_");
    let text = required(kernel, LIST)?;
    let mut lines = text.lines().map(|line| line.split_ascii_whitespace());
    let Some(mut words) = lines.find_map(|mut words| (words.next() == Some(name.as_str())).then_some(words)) else {
        return Ok(None);
    };
    let count = words.nth(1).and_then(|count| count.parse().ok());
    // `-` where the kernel cannot unload modules at all: as good as used.
    Ok(Some(count.unwrap_or(u64::MAX)))
}

/// Loads a module and reads back that it is there.
pub(crate) fn load(kernel: &dyn Kernel, module: &str) -> Result<(), ChangeError> {
    check(module)?;
    kernel.load_module(module)?;
    if is_loaded(kernel, module)? {
        return Ok(());
    }
    let (wanted, found) = ("loaded".to_owned(), "not loaded".to_owned());
    Err(ChangeError::NotTaken { object: format!("the module {module}"), wanted, found })
}

/// Removes a module that nothing uses; the sentence says what was found.
pub(crate) fn unload(kernel: &dyn Kernel, module: &str) -> Result<String, ChangeError> {
    check(module)?;
    match users(kernel, module)? {
        None => Ok(format!("the module {module} was already unloaded")),
        // A device that it drives and nobody has open does not count as a user.
        Some(0) if drives(kernel, module)? => Ok(format!("the module {module} drives a device now: left loaded")),
        Some(0) => {
            kernel.unload_module(module)?;
            Ok(format!("unloaded the module {module}"))
        }
        Some(_) => Ok(format!("the module {module} is in use now: left loaded")),
    }
}

/// Whether a PCI function is bound to the driver of this name: it would lose it with the module.
fn drives(kernel: &dyn Kernel, module: &str) -> Result<bool, ChangeError> {
    for name in [module.to_owned(), module.replace('_', "-")] {
        let entries = kernel.list(&format!("/sys/bus/pci/drivers/{name}"))?;
        if entries.iter().any(|entry| entry.parse::<PciAddress>().is_ok()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The name goes to another program.
fn check(module: &str) -> Result<(), ChangeError> {
    let good = module.starts_with(|c: char| c.is_ascii_alphanumeric())
        && module.len() <= 64
        && module.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if good { Ok(()) } else { Err(ChangeError::Kernel(format!("`{}` is not a module name", module.escape_debug()))) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_modules_are_names() {
        assert!(super::check("vhost_net").is_ok() && super::check("kvm-amd").is_ok());
        for name in ["", "-r", "a b", "a;b", "../a", "a\n", "ä"] {
            assert!(super::check(name).is_err(), "{name}");
        }
    }
}
