//! Whether there is room, asked before anything is written.

use std::path::Path;

use nearmetal_units::Bytes;

use crate::error::LabError;

/// Refuses when the file system of `path` has less than `needed` free for this user.
pub(crate) fn check(what: &'static str, path: &Path, needed: Bytes) -> Result<(), LabError> {
    // The directory itself may not be there yet; what exists of its path is on the same file system.
    let existing = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"));
    let statistics = rustix::fs::statvfs(existing).map_err(|error| LabError::Start {
        program: format!("statvfs {}", existing.display()),
        source: error.into(),
    })?;
    let available = Bytes::new(statistics.f_bavail.saturating_mul(statistics.f_frsize));
    if available < needed {
        return Err(LabError::Space { what, needed, available, path: existing.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_much_is_needed_where_and_what_to_do() {
        let error = check("an image", Path::new("/tmp/not/there"), Bytes::new(1 << 62)).unwrap_err().to_string();
        assert!(error.starts_with("an image needs 4194304 TiB, and "), "{error}");
        assert!(error.contains("are free at `/tmp`") && error.contains("NEARMETAL_CACHE"), "{error}");
        check("nothing", Path::new("/tmp"), Bytes::ZERO).unwrap();
    }
}
