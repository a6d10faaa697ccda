//! Servers as Debian has them, each with contents that a seed makes: what [`crate::load`] asks.
//!
//! The contents are written to a directory, the server is started on them in the foreground, and this process waits for it.
//! It ends with this process, even if that is killed. Nothing is configured but what a run needs: no logs, no encryption.

pub mod mail;
pub mod web;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nearmetal_host::files;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::error::ProbeError;
use crate::system::affinity;

/// What a server needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where the contents go; it must be empty or not exist.
    pub directory: PathBuf,
    /// Port of all addresses of this machine.
    pub port: u16,
    /// The server's program.
    pub program: PathBuf,
}

impl Settings {
    /// The directory, made and empty.
    ///
    /// # Errors
    /// It cannot be made, or holds something.
    pub(crate) fn prepare(&self) -> Result<(), ProbeError> {
        files::create_dir_all(&self.directory)?;
        // A file system that was just made has one directory.
        let foreign = |path: &PathBuf| path.file_name().is_some_and(|name| name != "lost+found");
        match files::list(&self.directory)?.into_iter().find(foreign) {
            None => Ok(()),
            Some(holds) => Err(ProbeError::NotEmpty { directory: self.directory.clone(), holds }),
        }
    }

    /// The same path as text.
    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

/// Worker processes: one for each CPU this process may run on, so that a server on a slice has no more than one in a guest.
pub(crate) fn workers() -> Result<usize, ProbeError> {
    let cpus = affinity::get().map_err(|source| ProbeError::kernel("tell the CPUs of this process", source))?;
    Ok(cpus.len().max(1))
}

/// Writes a server's configuration and runs it until it ends, which it should not.
///
/// # Errors
/// The configuration cannot be written, the server cannot be started, or it ended.
#[allow(unsafe_code, reason = "what a child does between fork and exec is unsafe: it makes one system call")]
pub(crate) fn run(program: &Path, configuration: (&Path, &str), arguments: &[&str]) -> Result<(), ProbeError> {
    use std::os::unix::process::CommandExt;
    files::write(configuration.0, configuration.1)?;
    // Written now, what is on this file system: what the kernel writes back later would disturb the one who measures.
    let written = files::open(configuration.0)?;
    rustix::fs::syncfs(&written).map_err(|source| ProbeError::kernel("write out the server's files", source))?;
    let mut server = Command::new(program);
    server.args(arguments).arg("-c").arg(configuration.0).stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: one system call, and no memory is allocated.
    unsafe { server.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
    let name = program.display().to_string();
    let status = server.status().map_err(|source| ProbeError::Start { program: name.clone(), source })?;
    Err(ProbeError::Ended { program: name, status })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::mailbox::Mail;
    use crate::load::site::{Site, SiteFile};
    use crate::serve::web::Serving;

    fn settings(directory: &Path, program: &str) -> Settings {
        Settings { directory: directory.join("data"), port: 8080, program: program.into() }
    }

    fn alone() -> (Site, Serving) {
        let site = Site { seed: 4, directories: 1 };
        (site, Serving { site, large: None, draw: 0 })
    }

    #[test]
    fn a_site_is_whole_before_its_server_starts_and_a_server_that_ends_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let (site, serving) = alone();
        let error = web::serve(&settings(place.path(), "/bin/false"), &serving).unwrap_err();
        assert!(matches!(error, ProbeError::Ended { .. }), "{error}");
        for file in site.files() {
            let path = place.path().join("data/site").join(&file.path()[1..]);
            assert_eq!(files::read(&path).unwrap(), site.contents(&file));
        }
        let configuration = files::read_to_string(&place.path().join("data/nginx.conf")).unwrap();
        assert!(configuration.contains("listen 8080") && configuration.contains("/data/site;"), "{configuration}");
        let again = web::serve(&settings(place.path(), "/bin/false"), &serving).unwrap_err().to_string();
        assert!(again.contains("is not empty"), "{again}");
    }

    #[test]
    fn the_largest_files_come_from_another_server_and_are_not_on_this_one() {
        let place = tempfile::tempdir().unwrap();
        let (site, serving) = alone();
        let serving = Serving { large: Some(([192, 0, 2, 1], 80).into()), ..serving };
        web::serve(&settings(place.path(), "/bin/false"), &serving).unwrap_err();
        for file in site.files() {
            let is_here = place.path().join("data/site").join(&file.path()[1..]).exists();
            assert_eq!(is_here, file.class < 3, "{file:?}");
        }
        let configuration = files::read_to_string(&place.path().join("data/nginx.conf")).unwrap();
        assert!(configuration.contains("server 192.0.2.1:80;") && configuration.contains("/c3s {"), "{configuration}");
    }

    #[test]
    fn paths_are_drawn_for_programs_that_ask_from_a_list_and_only_then() {
        let (site, serving) = alone();
        for draw in [0, 500] {
            let place = tempfile::tempdir().unwrap();
            web::serve(&settings(place.path(), "/bin/false"), &Serving { draw, ..serving }).unwrap_err();
            let found = files::read_to_string(&place.path().join("data/paths")).unwrap_or_default();
            let found: Vec<SiteFile> = found.lines().map(|path| SiteFile::of_path(path).unwrap()).collect();
            assert_eq!(found, site.drawn(4).take(draw as usize).collect::<Vec<_>>());
        }
    }

    #[test]
    fn mail_is_in_maildirs_and_named_by_its_number() {
        let place = tempfile::tempdir().unwrap();
        let mail = Mail { seed: 4, users: 2, messages: 3 };
        mail::write_mail(&settings(place.path(), "/bin/false"), mail, None).unwrap();
        let own = place.path().join("data/mail/user0001");
        assert_eq!(files::list(&own.join("cur")).unwrap().len(), 3);
        assert_eq!(files::read(&own.join("cur/2.nearmetal:2,S")).unwrap(), mail.message(1, 2));
        assert!(files::list(&own.join("new")).unwrap().is_empty() && files::list(&own.join("tmp")).unwrap().is_empty());
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let place = tempfile::tempdir().unwrap();
        let (_, serving) = alone();
        let error = web::serve(&settings(place.path(), "/no/such/nginx"), &serving).unwrap_err();
        assert!(error.to_string().contains("/no/such/nginx"), "{error}");
    }
}
