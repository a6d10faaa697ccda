//! A plugin for the lab's QEMU: counts what each emulated PU executes and which node's memory it touches.
//!
//! Nothing runs beside the machine. Blocks add their length to a number of their PU; entering and leaving a guest takes two
//! callbacks; the counts are written to the page when the machine executes [`PUBLISH`], on the PU that asks, so they are
//! exact at that instruction. A block that is left in its middle (a fault, an exit) is counted whole.
//!
//! Of accesses to memory one in 16 is looked at, at random, and stands for those before it; of the modelled cache every
//! sixteenth set. Asking where an access went costs more than the access.
//!
//! Where the machine counts work, its accesses are counted while it asks for that ([`WATCH`]): QEMU then forgets what it has
//! translated, and translates it again with or without calls to our code. Who dies without [`UNWATCH`] is not waited for.
//!
//! The file is named by `-plugin file=LIBRARY,counters=FILE,count=work|locality,nodes=MIB:MIB…`.

mod ffi;
mod page;
mod tally;

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use nearmetal_counters::{Count, MemoryMap, PUBLISH, UNWATCH, WATCH};

use ffi::{Block, Info, PluginId, Register, Scoreboard, physical_address};
use page::Page;
use tally::{Patience, Tally};

/// VMRUN (AMD APM vol. 3). It ends a block; what stands behind it is executed when the guest has been left.
const VMRUN: [u8; 3] = [0x0f, 0x01, 0xd8];

static TALLY: OnceLock<Tally> = OnceLock::new();
static ACCUMULATOR: OnceLock<Option<Register>> = OnceLock::new();
/// Who we are to QEMU.
static PLUGIN: OnceLock<PluginId> = OnceLock::new();
/// Where what stands behind a VMRUN is in QEMU's memory.
static BEHIND: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Called by QEMU before the machine exists. An argument it does not understand keeps QEMU from starting.
///
/// # Safety
/// QEMU's own: `info`, `count` and `words` are valid during the call.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "QEMU calls it with pointers")]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    // SAFETY: as the caller promised.
    let (words, vcpus) = unsafe { (ffi::arguments(count, words), (*info).vcpus) };
    match prepare(&words, vcpus) {
        Ok(tally) => {
            if TALLY.set(tally).is_err() || PLUGIN.set(id).is_err() {
                return 1;
            }
            ffi::register_vcpus(id, begins);
            ffi::register_translation(id, translated);
            0
        }
        Err(why) => {
            complain(&why);
            1
        }
    }
}

#[allow(clippy::print_stderr, reason = "QEMU's stderr is the lab's log, and there is no other way to it yet")]
fn complain(why: &str) {
    eprintln!("nearmetal's counter: {why}");
}

fn prepare(words: &[String], vcpus: c_int) -> Result<Tally, String> {
    let needed = |name: &str| {
        let value = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.ok_or_else(|| format!("`{name}=` is missing"))
    };
    let count: Count = needed("count")?.parse()?;
    let map = MemoryMap::parse(needed("nodes")?).map_err(|error| error.to_string())?;
    let path = Path::new(needed("counters")?);
    let page = Page::map(path).map_err(|error| format!("`{}`: {error}", path.display()))?;
    Tally::new(page, Scoreboard::new(), count, map, vcpus)
}

extern "C" fn begins(_: PluginId, _: c_uint) {
    ACCUMULATOR.get_or_init(|| Register::find("rax"));
}

extern "C" fn translated(_: PluginId, block: Block) {
    let Some(tally) = TALLY.get() else { return };
    let mut behind = BEHIND.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut first = true;
    for instruction in block.instructions() {
        // Registered before the addition: a guest's end is before the host's next block.
        if std::mem::take(&mut first) && behind.contains(&instruction.place()) {
            block.calls(leaves_guest);
        }
        if instruction.is(VMRUN) {
            instruction.calls(enters_guest);
            let place = instruction.place() + VMRUN.len();
            if !behind.contains(&place) {
                behind.push(place);
            }
        } else if instruction.is(PUBLISH) {
            instruction.calls(publishes);
        } else if instruction.is(WATCH) {
            instruction.calls(watch);
        } else if instruction.is(UNWATCH) {
            instruction.calls(unwatch);
        }
        if tally.is_watching() {
            instruction.tells_accesses(accesses);
        }
    }
    block.adds(block.len() as u64, tally.score());
}

extern "C" fn enters_guest(vcpu: c_uint, _: *mut c_void) {
    let vmcb = ACCUMULATOR.get().copied().flatten().and_then(Register::value);
    TALLY.get().into_iter().for_each(|tally| tally.enter(vcpu, vmcb));
}

extern "C" fn leaves_guest(vcpu: c_uint, _: *mut c_void) {
    TALLY.get().into_iter().for_each(|tally| tally.leave(vcpu));
}

extern "C" fn publishes(_: c_uint, _: *mut c_void) {
    TALLY.get().into_iter().for_each(Tally::publish);
}

extern "C" fn watch(_: c_uint, _: *mut c_void) {
    if TALLY.get().is_some_and(|tally| !tally.is_watching()) {
        turn();
    }
}

extern "C" fn unwatch(_: c_uint, _: *mut c_void) {
    if TALLY.get().is_some_and(Tally::may_stop) {
        turn();
    }
}

fn turn() {
    PLUGIN.get().into_iter().for_each(|id| ffi::reset(*id, turned));
}

/// No PU runs now, and nothing is translated.
extern "C" fn turned(id: PluginId) {
    TALLY.get().into_iter().for_each(Tally::turn);
    ffi::register_translation(id, translated);
}

extern "C" fn accesses(vcpu: c_uint, access: u32, address: u64, _: *mut c_void) {
    let Some(tally) = TALLY.get() else { return };
    if tally.access(vcpu, address, || physical_address(access, address)) == Patience::Ended {
        turn();
    }
}
