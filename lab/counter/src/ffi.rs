//! QEMU's plugin interface, version 4 (QEMU 9.1 and later; include/qemu/qemu-plugin.h), as far as it is used.
//!
//! Handles are those that QEMU hands to a callback; each wrapper says where it may be used.
#![allow(unsafe_code, reason = "calls into QEMU, whose interface is C")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{NonNull, null_mut};

/// The version of the interface that this plugin was written for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, unreachable_pub, reason = "QEMU's name, and QEMU reads it")]
pub static qemu_plugin_version: c_int = 4;

/// Who this plugin is to QEMU.
pub(crate) type PluginId = u64;
/// Called when a vCPU executes what the callback was registered for.
pub(crate) type OnExecution = extern "C" fn(vcpu: c_uint, data: *mut c_void);
/// Called when a block is translated.
pub(crate) type OnTranslation = extern "C" fn(id: PluginId, block: Block);
/// Called when a vCPU accesses memory.
pub(crate) type OnAccess = extern "C" fn(vcpu: c_uint, access: u32, address: u64, data: *mut c_void);
/// Called when a vCPU begins to exist.
pub(crate) type OnVcpu = extern "C" fn(id: PluginId, vcpu: c_uint);
/// Called when all that was translated is forgotten.
pub(crate) type OnReset = extern "C" fn(id: PluginId);

/// `qemu_info_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Info {
    target_name: *const c_char,
    lowest_version: c_int,
    current_version: c_int,
    system_emulation: bool,
    /// vCPUs at the beginning.
    pub(crate) vcpus: c_int,
    most_vcpus: c_int,
}

/// A block that is being translated: valid in the callback alone.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block(*mut c_void);

/// An instruction of such a block: valid in the callback alone.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instruction(*mut c_void);

/// A 64-bit number for each vCPU, which blocks add to.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scoreboard(*mut c_void);

// SAFETY: QEMU keeps a scoreboard until it is freed, which this plugin never does, and hands its elements to any thread.
unsafe impl Send for Scoreboard {}
// SAFETY: as above.
unsafe impl Sync for Scoreboard {}

/// `qemu_plugin_u64`.
#[repr(C)]
struct Element {
    score: Scoreboard,
    offset: usize,
}

/// `qemu_plugin_reg_descriptor`.
#[repr(C)]
struct RegisterDescriptor {
    handle: *mut c_void,
    name: *const c_char,
    feature: *const c_char,
}

/// glib's `GArray` and `GByteArray`, whose public fields are the same.
#[repr(C)]
struct Array {
    data: *mut c_void,
    len: c_uint,
}

const NO_REGISTERS: c_int = 0;
const READS_REGISTERS: c_int = 1;
const READS_AND_WRITES: c_int = 3;
const ADD: c_int = 0;

unsafe extern "C" {
    fn qemu_plugin_reset(id: PluginId, callback: OnReset);
    fn qemu_plugin_register_vcpu_init_cb(id: PluginId, callback: OnVcpu);
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, callback: OnTranslation);
    fn qemu_plugin_register_vcpu_tb_exec_cb(block: Block, callback: OnExecution, flags: c_int, data: *mut c_void);
    fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block: Block, operation: c_int, entry: Element, value: u64);
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: Instruction,
        callback: OnExecution,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        insn: Instruction,
        callback: OnAccess,
        flags: c_int,
        access: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_tb_n_insns(block: Block) -> usize;
    fn qemu_plugin_tb_get_insn(block: Block, index: usize) -> Instruction;
    fn qemu_plugin_insn_size(insn: Instruction) -> usize;
    fn qemu_plugin_insn_data(insn: Instruction, into: *mut c_void, length: usize) -> usize;
    fn qemu_plugin_insn_haddr(insn: Instruction) -> *mut c_void;
    fn qemu_plugin_scoreboard_new(size: usize) -> Scoreboard;
    fn qemu_plugin_scoreboard_find(score: Scoreboard, vcpu: c_uint) -> *mut c_void;
    fn qemu_plugin_get_hwaddr(access: u32, address: u64) -> *mut c_void;
    fn qemu_plugin_hwaddr_is_io(address: *const c_void) -> bool;
    fn qemu_plugin_hwaddr_phys_addr(address: *const c_void) -> u64;
    fn qemu_plugin_get_registers() -> *mut Array;
    fn qemu_plugin_read_register(handle: *mut c_void, into: *mut Array) -> c_int;
    // glib is in every QEMU.
    fn g_array_free(array: *mut Array, free_segment: c_int) -> *mut c_void;
    fn g_byte_array_new() -> *mut Array;
    fn g_byte_array_set_size(array: *mut Array, length: c_uint) -> *mut Array;
}

/// Asks to be called when vCPUs begin.
pub(crate) fn register_vcpus(id: PluginId, vcpu: OnVcpu) {
    // SAFETY: called from qemu_plugin_install with its own id; the callback lives as long as the library, which is never
    // unloaded.
    unsafe { qemu_plugin_register_vcpu_init_cb(id, vcpu) }
}

/// Asks to be called when blocks are translated.
pub(crate) fn register_translation(id: PluginId, translation: OnTranslation) {
    // SAFETY: called from qemu_plugin_install or from the callback of a reset, with its own id; the rest as above.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, translation) }
}

/// Forgets all callbacks and all that was translated, soon, and calls back when that is done and no PU runs. One that is
/// asked for while another is under way is not made.
pub(crate) fn reset(id: PluginId, done: OnReset) {
    // SAFETY: called from a callback of a vCPU, with the plugin's own id.
    unsafe { qemu_plugin_reset(id, done) }
}

/// The words that were given after `-plugin file=…,`.
///
/// # Safety
/// `words` and `count` are those that QEMU gave qemu_plugin_install.
pub(crate) unsafe fn arguments(count: c_int, words: *const *const c_char) -> Vec<String> {
    let at = |index: c_int| {
        // SAFETY: below `count`, as the caller promised, and QEMU's words are strings.
        let word = unsafe { CStr::from_ptr(*words.add(index as usize)) };
        word.to_string_lossy().into_owned()
    };
    (0..count).map(at).collect()
}

impl Block {
    /// Its instructions.
    pub(crate) fn instructions(self) -> impl Iterator<Item = Instruction> {
        // SAFETY: the block is valid in the callback that it was handed to, and the index below its length.
        (0..self.len()).map(move |index| unsafe { qemu_plugin_tb_get_insn(self, index) })
    }

    /// How many instructions it has.
    pub(crate) fn len(self) -> usize {
        // SAFETY: as above.
        unsafe { qemu_plugin_tb_n_insns(self) }
    }

    /// Adds to the executing vCPU's number whenever the block is executed.
    pub(crate) fn adds(self, value: u64, score: Scoreboard) {
        // SAFETY: as above; the element is the scoreboard's first and only one.
        unsafe { qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(self, ADD, Element { score, offset: 0 }, value) }
    }

    /// Calls back whenever the block is executed, before its first instruction.
    pub(crate) fn calls(self, callback: OnExecution) {
        // SAFETY: as above.
        unsafe { qemu_plugin_register_vcpu_tb_exec_cb(self, callback, NO_REGISTERS, null_mut()) }
    }
}

impl Instruction {
    /// Whether it is these bytes.
    pub(crate) fn is<const N: usize>(self, bytes: [u8; N]) -> bool {
        let mut own = [0_u8; N];
        // SAFETY: the instruction is valid in the callback, and `own` has room for what is asked.
        let copied = unsafe {
            if qemu_plugin_insn_size(self) != N {
                return false;
            }
            qemu_plugin_insn_data(self, own.as_mut_ptr().cast(), N)
        };
        copied == N && own == bytes
    }

    /// Where its bytes are in QEMU's own memory: the same bytes have the same place whatever address they are executed at.
    pub(crate) fn place(self) -> usize {
        // SAFETY: as above; the address is only compared.
        unsafe { qemu_plugin_insn_haddr(self) as usize }
    }

    /// Calls back before it is executed; registers can be read then.
    pub(crate) fn calls(self, callback: OnExecution) {
        // SAFETY: as above.
        unsafe { qemu_plugin_register_vcpu_insn_exec_cb(self, callback, READS_REGISTERS, null_mut()) }
    }

    /// Calls back for each of its accesses to memory.
    pub(crate) fn tells_accesses(self, callback: OnAccess) {
        // SAFETY: as above.
        unsafe { qemu_plugin_register_vcpu_mem_cb(self, callback, NO_REGISTERS, READS_AND_WRITES, null_mut()) }
    }
}

impl Scoreboard {
    /// One number for each vCPU, 0 at first.
    pub(crate) fn new() -> Self {
        // SAFETY: any size will do.
        unsafe { qemu_plugin_scoreboard_new(size_of::<u64>()) }
    }

    /// A vCPU's number, which may be rising meanwhile.
    pub(crate) fn get(self, vcpu: c_uint) -> u64 {
        // SAFETY: QEMU has an element for each vCPU that exists, and all of a lab's do from the beginning. An aligned word is
        // read whole on x86.
        unsafe { qemu_plugin_scoreboard_find(self, vcpu).cast::<u64>().read_volatile() }
    }
}

/// The physical address of an access to memory, in the callback that tells of it; `None` for a device's.
pub(crate) fn physical_address(access: u32, address: u64) -> Option<u64> {
    // SAFETY: called from the callback that got `access` and `address`.
    unsafe {
        let handle = qemu_plugin_get_hwaddr(access, address);
        if handle.is_null() || qemu_plugin_hwaddr_is_io(handle) {
            return None;
        }
        Some(qemu_plugin_hwaddr_phys_addr(handle))
    }
}

/// A register, as QEMU knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Register(*mut c_void);

// SAFETY: a number in the shape of a pointer (plugins/api.c, create_register_handles), the same for all vCPUs.
unsafe impl Send for Register {}
// SAFETY: as above.
unsafe impl Sync for Register {}

impl Register {
    /// The register of this name; called where a vCPU begins.
    pub(crate) fn find(name: &str) -> Option<Self> {
        // SAFETY: called on a vCPU's thread, as QEMU wants; the array is ours to free, its names are not.
        unsafe {
            let array = NonNull::new(qemu_plugin_get_registers())?;
            let (first, count) = (array.as_ref().data.cast::<RegisterDescriptor>(), array.as_ref().len as usize);
            let mut all = (0..count).map(|index| first.add(index).read());
            let found = all.find(|one| CStr::from_ptr(one.name).to_bytes() == name.as_bytes());
            g_array_free(array.as_ptr(), 1);
            found.map(|one| Self(one.handle))
        }
    }

    /// Its value in the executing vCPU; called from an instruction's callback.
    pub(crate) fn value(self) -> Option<u64> {
        thread_local! {
            static BYTES: Cell<*mut Array> = const { Cell::new(null_mut()) };
        }
        // SAFETY: each vCPU's thread has an array of its own, which lives as long as QEMU does.
        unsafe {
            if BYTES.get().is_null() {
                BYTES.set(g_byte_array_new());
            }
            let bytes = g_byte_array_set_size(BYTES.get(), 0);
            if qemu_plugin_read_register(self.0, bytes) != 8 || (*bytes).len < 8 {
                return None;
            }
            Some((*bytes).data.cast::<u64>().read_unaligned())
        }
    }
}
