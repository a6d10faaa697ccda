//! What holds the arms' blocks: regions of a scratch device, files in a scratch directory. All are written full once
//! before the first sample: storage never written answers reads without reading.

use std::path::{Path, PathBuf};
use std::process::Command;

use nearmetal_host::files;
use nearmetal_load::fio_filename;
use nearmetal_results::Container;
use nearmetal_units::Bytes;

use crate::error::MeasureError;
use crate::program::run;

/// Name of the directory made inside the scratch directory; it is removed with all in it.
const INSIDE: &str = "nearmetal-matrix";

/// Files in a scratch directory.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    span: Bytes,
    made: usize,
}

impl Files {
    /// Where files of a scratch directory lie.
    pub(crate) fn inside(scratch: &Path) -> PathBuf {
        scratch.join(INSIDE)
    }

    /// Begins in `scratch`, for `count` files of `span` bytes. Whoever calls writes down that it is to be removed first.
    ///
    /// # Errors
    /// Not a directory, or less free space than is needed.
    pub(crate) fn begin(scratch: &Path, count: usize, span: Bytes) -> Result<Self, MeasureError> {
        let refuse = |why: String| MeasureError::Scratch { device: scratch.display().to_string(), why };
        if !scratch.is_dir() || !scratch.is_absolute() {
            return Err(refuse("name a directory by its whole path, or a whole block device".to_owned()));
        }
        let system = rustix::fs::statvfs(scratch).map_err(|error| refuse(error.to_string()))?;
        let free = Bytes::new(system.f_bavail.saturating_mul(system.f_frsize));
        // The data to fill with, a base under each overlay, and a tenth for tables.
        let needed = Bytes::new(span.times(count as u64 * 2 + 1).get() / 10 * 11);
        if free < needed {
            return Err(refuse(format!(
                "{needed} are needed for {count} files of {span}, and {free} are free: make room, give a smaller --span, or leave arms out (--without)"
            )));
        }
        let directory = Self::inside(scratch);
        if directory.exists() {
            return Err(refuse(format!("`{}` is there already: remove it if it is of no use", directory.display())));
        }
        files::create_dir_all(&directory)?;
        let files = Self { directory, span, made: 0 };
        fill(&files.data(), Bytes::ZERO, span)?;
        Ok(files)
    }

    fn data(&self) -> String {
        self.directory.join("data.raw").display().to_string()
    }

    /// Whether files here can be read past the page cache.
    pub(crate) fn direct(&self) -> bool {
        let input = format!("if={}", self.data());
        run(Command::new("dd").args([&input, "of=/dev/null", "bs=4096", "count=1", "iflag=direct", "status=none"]))
            .is_ok()
    }

    /// Makes the file of one arm, full, and gives its path.
    pub(crate) fn make(&mut self, container: Container) -> Result<String, MeasureError> {
        let path = |name: String| self.directory.join(name).display().to_string();
        let (number, size) = (self.made, self.span.get().to_string());
        let file = path(format!("{number:03}-{}.{}", container.id(), container.format()));
        let create = |file: &str, format: &str, options: &str| {
            run(Command::new("qemu-img").args(["create", "-q", "-f", format, "-o", options, file, &size])).map(drop)
        };
        let copy_into = |file: &str, format: &str| {
            let arguments = ["convert", "-n", "-f", "raw", "-O", format, "-t", "none", &self.data(), file];
            // Where the file system has no O_DIRECT, through the cache.
            run(Command::new("qemu-img").args(arguments))
                .or_else(|_| {
                    run(Command::new("qemu-img").args(["convert", "-n", "-f", "raw", "-O", format, &self.data(), file]))
                })
                .map(drop)
        };
        match container {
            Container::Partition | Container::Device | Container::Lvm => {
                return Err(MeasureError::Unfit("a block device is not a file: this is a bug in nearmetal".to_owned()));
            }
            Container::RawFile => create(&file, "raw", "preallocation=falloc")?,
            Container::Qcow2Metadata => create(&file, "qcow2", "preallocation=metadata")?,
            Container::Qcow2Falloc => create(&file, "qcow2", "preallocation=falloc")?,
            Container::Qcow2Full | Container::Qcow2Snapshot => create(&file, "qcow2", "preallocation=full")?,
            Container::Qcow2Backing => {
                let base = path(format!("{number:03}-base.raw"));
                create(&base, "raw", "preallocation=falloc")?;
                copy_into(&base, "raw")?;
                let arguments = ["create", "-q", "-f", "qcow2", "-b", &base, "-F", "raw", &file];
                run(Command::new("qemu-img").args(arguments))?;
                self.made += 1;
                return Ok(file);
            }
        }
        copy_into(&file, container.format())?;
        if container == Container::Qcow2Snapshot {
            run(Command::new("qemu-img").args(["snapshot", "-c", "full", &file]))?;
        }
        self.made += 1;
        Ok(file)
    }
}

/// Writes `span` bytes of a device or file from `offset` on, in the pattern fio gives its buffers.
pub(crate) fn fill(path: &str, offset: Bytes, span: Bytes) -> Result<(), MeasureError> {
    let (file, size) = (fio_filename(path), format!("--size={}", span.get()));
    let offset = format!("--offset={}", offset.get());
    let arguments =
        ["--name=fill", "--rw=write", "--bs=1M", "--ioengine=psync", "--refill_buffers", "--end_fsync=1", "--minimal"];
    run(Command::new("fio").args(arguments).args([&file, &size, &offset])).map(drop)
}
