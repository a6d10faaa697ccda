//! Five ways a file may be compressed, told apart by their first bytes, and a brake on what comes out.

use std::io::{self, Read};

/// Bytes that may come out: a capture of a 256-node machine is about 100 MiB, and a bomb has no end.
pub(crate) const MOST_UNPACKED: u64 = 1 << 30;
/// Memory an xz stream may ask for, in KiB: `xz -9` asks for 65 MiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

/// The uncompressed bytes of `data`, which is not copied.
///
/// # Errors
/// The head of a stream that cannot be begun; everything later comes as an error of reading.
pub(crate) fn reader(data: &[u8]) -> io::Result<Box<dyn Read + '_>> {
    let inner: Box<dyn Read + '_> = match data {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(data)),
        [b'B', b'Z', b'h', ..] => Box::new(bzip2::read::MultiBzDecoder::new(data)),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            Box::new(lzma_rust2::XzReader::new_mem_limit(data, true, XZ_MEMORY_KIB))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(zstd(data)?),
        plain => Box::new(plain),
    };
    Ok(Box::new(Brake { inner, left: MOST_UNPACKED }))
}

fn zstd(data: &[u8]) -> io::Result<impl Read + '_> {
    // The decoder refuses windows over 100 MiB by itself. `zstd` writes one frame, `pzstd` several.
    Ok(ZstdFrames { data, decoder: None })
}

/// Frame after frame of a zstd file.
struct ZstdFrames<'a> {
    data: &'a [u8],
    decoder: Option<ruzstd::decoding::StreamingDecoder<&'a [u8], ruzstd::decoding::FrameDecoder>>,
}

impl Read for ZstdFrames<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(decoder) = &mut self.decoder {
                let count = decoder.read(buffer)?;
                if count > 0 {
                    return Ok(count);
                }
                self.data = decoder.get_ref();
                self.decoder = None;
            }
            if self.data.is_empty() {
                return Ok(0);
            }
            let decoder = ruzstd::decoding::StreamingDecoder::new(self.data)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            self.decoder = Some(decoder);
        }
    }
}

/// Ends with an error where more comes out than may.
struct Brake<R> {
    inner: R,
    left: u64,
}

/// The error of [`Brake`], to be told from others.
#[derive(Debug, thiserror::Error)]
#[error("more than {} MiB come out of it", MOST_UNPACKED >> 20)]
pub(crate) struct TooMuch;

impl<R: Read> Read for Brake<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| io::Error::other(TooMuch))?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bomb_is_stopped() {
        let mut brake = Brake { inner: io::repeat(0), left: 1 << 20 };
        let error = io::copy(&mut brake, &mut io::sink()).unwrap_err();
        assert!(error.get_ref().is_some_and(|inner| inner.is::<TooMuch>()), "{error}");
    }

    #[test]
    fn a_damaged_stream_is_an_error_and_no_panic() {
        for head in [&[0x1f, 0x8b][..], b"BZh9", &[0xfd, b'7', b'z', b'X', b'Z', 0], &[0x28, 0xb5, 0x2f, 0xfd]] {
            for tail in [&b""[..], b"xxxxxxxxxxxxxxxxxxxxxxxx", &[0xff; 64]] {
                let data = [head, tail].concat();
                let result = reader(&data).and_then(|mut reader| reader.read_to_end(&mut Vec::new()));
                assert!(result.is_err(), "{head:x?} {tail:x?}");
            }
        }
    }
}
