//! A plugin for the lab's QEMU: counts what each emulated PU executes and which node's memory it touches.
//!
//! Nothing runs beside the machine. Blocks add their length to a number of their PU; entering and leaving a guest takes two
//! callbacks; the counts are written to the page when the machine executes [`PUBLISH`], on the PU that asks, so they are
//! exact at that instruction. A block that is left in its middle (a fault, an exit) is counted whole.
//!
//! Of accesses to memory one in 16 is looked at, at random, and stands for those before it; of the modelled cache every
//! sixteenth set. Asking where an access went costs more than the access.
//!
//! The file is named by `-plugin file=LIBRARY,counters=FILE,mode=work|locality,nodes=MIB:MIB…[,cache=BYTES]`.

mod ffi;
mod page;
mod tally;

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use nearmetal_counters::{MemoryMap, Mode, PUBLISH};

use ffi::{Block, Info, PluginId, Register, Scoreboard, physical_address};
use page::Page;
use tally::Tally;

/// VMRUN (AMD APM vol. 3). It ends a block; what stands behind it is executed when the guest has been left.
const VMRUN: [u8; 3] = [0x0f, 0x01, 0xd8];
/// Bytes of the modelled cache where none are stated: a mebibyte, between the L2 and a core's share of the L3 of the
/// processor that the lab emulates (EPYC 7002: 512 KiB and 4 MiB).
const CACHE: u64 = 1 << 20;

static TALLY: OnceLock<Tally> = OnceLock::new();
static ACCUMULATOR: OnceLock<Option<Register>> = OnceLock::new();
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
            if TALLY.set(tally).is_err() {
                return 1;
            }
            ffi::register(id, begins, translated);
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
    let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let needed = |name: &str| value(name).ok_or_else(|| format!("`{name}=` is missing"));
    let mode = match needed("mode")? {
        "work" => Mode::Work,
        "locality" => Mode::Locality,
        other => return Err(format!("mode `{other}`: it is `work` or `locality`")),
    };
    let map = MemoryMap::parse(needed("nodes")?).map_err(|error| error.to_string())?;
    let cache = match value("cache") {
        None => CACHE,
        Some(text) => text.parse().map_err(|_| format!("cache `{text}`: a number of bytes"))?,
    };
    let path = Path::new(needed("counters")?);
    let page = Page::map(path).map_err(|error| format!("`{}`: {error}", path.display()))?;
    Tally::new(page, Scoreboard::new(), mode, map, cache, vcpus)
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
        }
        if tally.mode() == Mode::Locality {
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

extern "C" fn accesses(vcpu: c_uint, access: u32, address: u64, _: *mut c_void) {
    let Some(tally) = TALLY.get() else { return };
    tally.access(vcpu, address, || physical_address(access, address));
}
