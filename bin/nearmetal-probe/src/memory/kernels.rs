//! The four loops of the bandwidth measurement, in SSE2 (every x86-64) and AVX2, with ordinary and non-temporal stores.
//!
//! Which set runs is decided by CPUID at run time and reported, since a hypervisor may hide AVX2 from its guest and
//! change the code path in silence. AVX-512 is left out: its intrinsics need a newer compiler than the project asks
//! for, and two 32-byte loads per cycle already exceed what one core gets from memory.
#![allow(unsafe_code, reason = "SIMD intrinsics over slices")]

use core::arch::x86_64::{
    __m128i, __m256i, _mm_add_pd, _mm_load_pd, _mm_load_si128, _mm_mul_pd, _mm_or_si128, _mm_set1_epi64x, _mm_set1_pd,
    _mm_setzero_si128, _mm_sfence, _mm_store_pd, _mm_store_si128, _mm_stream_pd, _mm_stream_si128, _mm256_add_pd,
    _mm256_load_pd, _mm256_load_si256, _mm256_mul_pd, _mm256_or_si256, _mm256_set1_epi64x, _mm256_set1_pd,
    _mm256_setzero_si256, _mm256_store_pd, _mm256_store_si256, _mm256_stream_pd, _mm256_stream_si256,
};

use serde::Serialize;

/// Words (of 64 bits) every slice is a multiple of, and bytes it is aligned to: four AVX2 registers.
pub const BLOCK_WORDS: usize = 16;

/// An instruction set the loops exist for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Instructions {
    /// 16-byte registers; part of x86-64.
    Sse2,
    /// 32-byte registers.
    Avx2,
}

impl Instructions {
    /// Whether this CPU (or what its hypervisor shows of it) has them.
    pub fn available(self) -> bool {
        match self {
            Self::Sse2 => true,
            Self::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
        }
    }

    /// The widest available.
    pub fn widest() -> Self {
        if Self::Avx2.available() { Self::Avx2 } else { Self::Sse2 }
    }
}

/// How results go to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stores {
    /// Through the caches: a line is usually read before it is written, traffic the figure does not count.
    Ordinary,
    /// Past the caches (MOVNT): no such read.
    NonTemporal,
}

/// A loop over words of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernel {
    /// `sum |= a[i]`
    Read,
    /// `a[i] = constant`
    Write,
    /// `a[i] = b[i]`
    Copy,
    /// `a[i] = b[i] + 3 * c[i]` in 64-bit floating point, as STREAM's triad.
    Triad,
}

impl Kernel {
    /// All four, in the order they run.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Copy, Self::Triad];

    /// Arrays the region is divided into.
    pub fn arrays(self) -> usize {
        match self {
            Self::Read | Self::Write => 1,
            Self::Copy => 2,
            Self::Triad => 3,
        }
    }
}

/// Runs one pass of a kernel over a region and returns the bytes it read and wrote, each counted once.
///
/// The region is cut to what divides into the kernel's arrays of whole blocks; `instructions` must be available
/// (otherwise SSE2 runs), and the region must be aligned to 32 bytes (otherwise nothing runs, and 0 is returned).
pub fn pass(kernel: Kernel, instructions: Instructions, stores: Stores, region: &mut [u64]) -> u64 {
    let arrays = kernel.arrays();
    let words = region.len() / (arrays * BLOCK_WORDS) * BLOCK_WORDS;
    if words == 0 || region.as_ptr().addr() % 32 != 0 {
        return 0;
    }
    let (first, rest) = region.split_at_mut(words);
    let (second, rest) = rest.split_at(if arrays > 1 { words } else { 0 });
    let third = &rest[..if arrays > 2 { words } else { 0 }];
    let stream = stores == Stores::NonTemporal;
    let wide = instructions == Instructions::Avx2 && instructions.available();
    // SAFETY: AVX2 is only entered when CPUID shows it. The slices the kernel uses have the same length, a multiple
    // of BLOCK_WORDS, and are aligned to 32 bytes, since the region is and a block is 128 bytes.
    unsafe {
        match (kernel, wide) {
            (Kernel::Read, true) => read_avx2(first),
            (Kernel::Read, false) => read_sse2(first),
            (Kernel::Write, true) => write_avx2(first, stream),
            (Kernel::Write, false) => write_sse2(first, stream),
            (Kernel::Copy, true) => copy_avx2(first, second, stream),
            (Kernel::Copy, false) => copy_sse2(first, second, stream),
            (Kernel::Triad, true) => triad_avx2(first, second, third, stream),
            (Kernel::Triad, false) => triad_sse2(first, second, third, stream),
        }
    }
    (words * 8 * arrays) as u64
}

/// One instruction set's four loops. `$width` is in words. Safety of each function: the CPU has the feature, all
/// slices have the length of the first, a multiple of BLOCK_WORDS, and are aligned to 32 bytes.
macro_rules! loops {
    ($feature:literal, $width:literal, $integer:ty, $read:ident, $write:ident, $copy:ident, $triad:ident,
     $zero:ident, $set:ident, $or:ident, $load:ident, $store:ident, $stream:ident,
     $set_pd:ident, $load_pd:ident, $add_pd:ident, $mul_pd:ident, $store_pd:ident, $stream_pd:ident) => {
        #[target_feature(enable = $feature)]
        #[inline(never)]
        unsafe fn $read(a: &[u64]) {
            // SAFETY: every offset is below the length, by the contract above.
            unsafe {
                let mut sums: [$integer; 4] = [$zero(); 4];
                for base in (0..a.len()).step_by(4 * $width) {
                    for (lane, sum) in sums.iter_mut().enumerate() {
                        *sum = $or(*sum, $load(a.as_ptr().add(base + lane * $width).cast()));
                    }
                }
                std::hint::black_box(sums);
            }
        }

        #[target_feature(enable = $feature)]
        #[inline(never)]
        unsafe fn $write(a: &mut [u64], stream: bool) {
            // SAFETY: every offset is below the length, by the contract above.
            unsafe {
                let value = $set(std::hint::black_box(0x3ff0_0000_0000_0000));
                for base in (0..a.len()).step_by(4 * $width) {
                    for lane in 0..4 {
                        let place = a.as_mut_ptr().add(base + lane * $width).cast();
                        if stream { $stream(place, value) } else { $store(place, value) }
                    }
                }
                _mm_sfence();
            }
        }

        #[target_feature(enable = $feature)]
        #[inline(never)]
        unsafe fn $copy(a: &mut [u64], b: &[u64], stream: bool) {
            // SAFETY: every offset is below both lengths, by the contract above.
            unsafe {
                for base in (0..a.len()).step_by(4 * $width) {
                    for lane in 0..4 {
                        let offset = base + lane * $width;
                        let value = $load(b.as_ptr().add(offset).cast());
                        let place = a.as_mut_ptr().add(offset).cast();
                        if stream { $stream(place, value) } else { $store(place, value) }
                    }
                }
                _mm_sfence();
            }
        }

        #[target_feature(enable = $feature)]
        #[inline(never)]
        unsafe fn $triad(a: &mut [u64], b: &[u64], c: &[u64], stream: bool) {
            // SAFETY: every offset is below all three lengths, by the contract above.
            unsafe {
                let scale = $set_pd(3.0);
                for base in (0..a.len()).step_by(4 * $width) {
                    for lane in 0..4 {
                        let offset = base + lane * $width;
                        let left = $load_pd(b.as_ptr().add(offset).cast());
                        let right = $load_pd(c.as_ptr().add(offset).cast());
                        let value = $add_pd(left, $mul_pd(scale, right));
                        let place = a.as_mut_ptr().add(offset).cast();
                        if stream { $stream_pd(place, value) } else { $store_pd(place, value) }
                    }
                }
                _mm_sfence();
            }
        }
    };
}

loops!(
    "sse2",
    2,
    __m128i,
    read_sse2,
    write_sse2,
    copy_sse2,
    triad_sse2,
    _mm_setzero_si128,
    _mm_set1_epi64x,
    _mm_or_si128,
    _mm_load_si128,
    _mm_store_si128,
    _mm_stream_si128,
    _mm_set1_pd,
    _mm_load_pd,
    _mm_add_pd,
    _mm_mul_pd,
    _mm_store_pd,
    _mm_stream_pd
);
loops!(
    "avx2",
    4,
    __m256i,
    read_avx2,
    write_avx2,
    copy_avx2,
    triad_avx2,
    _mm256_setzero_si256,
    _mm256_set1_epi64x,
    _mm256_or_si256,
    _mm256_load_si256,
    _mm256_store_si256,
    _mm256_stream_si256,
    _mm256_set1_pd,
    _mm256_load_pd,
    _mm256_add_pd,
    _mm256_mul_pd,
    _mm256_store_pd,
    _mm256_stream_pd
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::mapping::{Mapping, PageKind};

    /// Every kernel in every form computes what its line above says, and counts every byte.
    #[test]
    fn the_kernels_compute_and_count() {
        for instructions in [Instructions::Sse2, Instructions::widest()] {
            for stores in [Stores::Ordinary, Stores::NonTemporal] {
                let mut mapping = Mapping::new(12 * 1024, PageKind::Small).unwrap();
                let words = mapping.words_mut();
                let run = |kernel, words: &mut [u64]| pass(kernel, instructions, stores, words);

                assert_eq!(run(Kernel::Read, words), 12 * 1024);
                assert_eq!(run(Kernel::Write, words), 12 * 1024);
                assert!(words.iter().all(|word| f64::from_bits(*word) == 1.0));

                let half = words.len() / 2;
                (0..half).for_each(|index| words[half + index] = index as u64);
                assert_eq!(run(Kernel::Copy, words), 12 * 1024);
                assert!((0..half).all(|index| words[index] == index as u64));

                let third = words.len() / 3;
                for index in 0..third {
                    words[third + index] = (index as f64).to_bits();
                    words[2 * third + index] = 2.0f64.to_bits();
                }
                assert_eq!(run(Kernel::Triad, words), 12 * 1024);
                assert!((0..third).all(|index| f64::from_bits(words[index]) == index as f64 + 6.0));
            }
        }
    }

    #[test]
    fn a_region_without_a_block_runs_nothing() {
        let mut mapping = Mapping::new(4096, PageKind::Small).unwrap();
        let words = mapping.words_mut();
        assert_eq!(pass(Kernel::Read, Instructions::Sse2, Stores::Ordinary, &mut words[..15]), 0);
        assert_eq!(pass(Kernel::Read, Instructions::Sse2, Stores::Ordinary, &mut words[1..33]), 0);
        assert_eq!(pass(Kernel::Copy, Instructions::Sse2, Stores::Ordinary, &mut words[..16]), 0);
        assert_eq!(pass(Kernel::Copy, Instructions::Sse2, Stores::Ordinary, &mut words[..47]), 256);
    }
}
