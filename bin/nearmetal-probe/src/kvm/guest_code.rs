//! The guests: loops in 64-bit mode, as the kernels of today's guests run, in a few dozen bytes.

/// Size of the guest's memory.
pub const MEMORY_BYTES: usize = 64 << 10;
/// Guest-physical address of the top page table (PML4); the next two pages hold the tables below it.
pub const PAGE_TABLE: u64 = 0x1000;
/// Guest-physical address of the first program; each has a page of its own.
pub const PROGRAMS: u64 = 0x4000;
/// I/O port no device answers: writing it ends in user space.
pub const PORT: u8 = 0x10;

/// What is in the loop besides counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Nothing: `dec; jnz`.
    None,
    /// `out imm8, al`: KVM returns to user space, as for an emulated device in QEMU.
    UserSpace,
    /// `cpuid` of leaf 0: always exits (Intel) or is intercepted (AMD), handled inside the kernel.
    Kernel,
}

/// Programs in the order they lie in memory: (what the exit is, how many are in the loop's body).
pub const LAYOUT: [(Exit, u64); 7] = [
    (Exit::None, 0),
    (Exit::UserSpace, 0),
    (Exit::UserSpace, 1),
    (Exit::UserSpace, 2),
    (Exit::Kernel, 0),
    (Exit::Kernel, 1),
    (Exit::Kernel, 2),
];

/// Guest-physical address of a program of [`LAYOUT`]; the plain loop for any other.
pub fn address(exit: Exit, exits: u64) -> u64 {
    let index = LAYOUT.iter().position(|program| *program == (exit, exits)).unwrap_or(0);
    PROGRAMS + index as u64 * 0x1000
}

/// The bytes of a program: counts rsi down to zero, then halts. rbx, which `cpuid` overwrites, is not used.
pub fn program(exit: Exit, exits: u64) -> Vec<u8> {
    // What a body needs besides its exits is in all three bodies, so that the slope is the exit's alone.
    let (around, exiting): (&[u8], &[u8]) = match exit {
        Exit::None => (&[], &[]),
        // out PORT, al
        Exit::UserSpace => (&[], &[0xe6, PORT]),
        // xor eax, eax (cpuid overwrites its leaf number) around cpuid
        Exit::Kernel => (&[0x31, 0xc0], &[0x0f, 0xa2]),
    };
    let mut code = Vec::new();
    for place in 0..2 {
        code.extend(around);
        if place < exits {
            code.extend(exiting);
        }
    }
    // dec rsi
    code.extend([0x48, 0xff, 0xce]);
    // jnz to the start: the displacement counts from the end of the jump itself.
    let back = -(code.len() as i64 + 2);
    code.extend([0x75, back as i8 as u8]);
    // hlt
    code.push(0xf4);
    code
}

/// Fills the guest's memory: page tables that map the first 2 MiB one to one, and the programs.
pub fn load(memory: &mut [u64]) {
    const PRESENT_WRITABLE: u64 = 3;
    const LARGE_PAGE: u64 = 1 << 7;
    let mut put = |address: u64, value: u64| {
        if let Some(word) = memory.get_mut(address as usize / 8) {
            *word = value;
        }
    };
    put(PAGE_TABLE, (PAGE_TABLE + 0x1000) | PRESENT_WRITABLE);
    put(PAGE_TABLE + 0x1000, (PAGE_TABLE + 0x2000) | PRESENT_WRITABLE);
    put(PAGE_TABLE + 0x2000, LARGE_PAGE | PRESENT_WRITABLE);
    for (exit, exits) in LAYOUT {
        for (index, chunk) in program(exit, exits).chunks(8).enumerate() {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            put(address(exit, exits) + index as u64 * 8, u64::from_le_bytes(word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jump_leads_to_the_start() {
        for (exit, exits) in LAYOUT {
            let code = program(exit, exits);
            let jump = code.iter().rposition(|byte| *byte == 0x75).unwrap();
            let target = jump as i64 + 2 + i64::from(code[jump + 1] as i8);
            assert_eq!(target, 0, "{exit:?} {exits}");
            assert_eq!(*code.last().unwrap(), 0xf4);
            assert!(code.len() <= 24, "a few dozen bytes");
        }
        assert_eq!(program(Exit::None, 0), [0x48, 0xff, 0xce, 0x75, 0xfb, 0xf4]);
        assert_eq!(program(Exit::UserSpace, 1), [0xe6, 0x10, 0x48, 0xff, 0xce, 0x75, 0xf9, 0xf4]);
        assert_eq!(program(Exit::Kernel, 1), [0x31, 0xc0, 0x0f, 0xa2, 0x31, 0xc0, 0x48, 0xff, 0xce, 0x75, 0xf5, 0xf4]);
    }

    #[test]
    fn programs_do_not_overlap_the_tables_and_fit() {
        let mut memory = vec![0u64; MEMORY_BYTES / 8];
        load(&mut memory);
        assert_eq!(memory[0x1000 / 8], 0x2003);
        assert_eq!(memory[0x2000 / 8], 0x3003);
        assert_eq!(memory[0x3000 / 8], 0x83);
        for (exit, exits) in LAYOUT {
            let start = address(exit, exits) as usize;
            assert!(start > 0x3fff && start + 32 <= MEMORY_BYTES);
            let bytes: Vec<u8> = memory[start / 8..start / 8 + 4].iter().flat_map(|word| word.to_le_bytes()).collect();
            assert!(bytes.starts_with(&program(exit, exits)));
        }
        load(&mut memory[..10]);
    }
}
