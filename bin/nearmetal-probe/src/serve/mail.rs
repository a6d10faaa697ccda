//! Dovecot with generated mail.

use std::path::Path;

use nearmetal_host::files;
use rustix::fs::{Gid, Uid, chown};

use super::{Settings, run};
use crate::error::ProbeError;
use crate::load::mailbox::{Mail, PASSWORD, user};

/// Where Debian has it.
pub const PROGRAM: &str = "/usr/sbin/dovecot";
/// The user `nobody` of every Debian: Dovecot gives mail to nobody who is root.
const NOBODY: u32 = 65_534;
/// Connections at once.
const CLIENTS: u32 = 4_096;
/// Of these, who are logging in at the same time.
const LOGINS: u32 = CLIENTS / 4;

/// Writes the mail and serves it.
///
/// # Errors
/// The directory is not empty or cannot be written, or the server ended.
pub fn serve(settings: &Settings, mail: Mail) -> Result<(), ProbeError> {
    write_mail(settings, mail, Some(NOBODY))?;
    let configuration = configuration(settings);
    run(&settings.program, (&settings.directory.join("dovecot.conf"), &configuration), &["-F"])
}

/// Writes a maildir for each user (<https://cr.yp.to/proto/maildir.html>), all of it read, and gives it to `owner`.
pub(super) fn write_mail(settings: &Settings, mail: Mail, owner: Option<u32>) -> Result<(), ProbeError> {
    settings.prepare()?;
    let give = |path: &Path| match owner {
        Some(owner) => chown(path, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))
            .map_err(|error| ProbeError::kernel(format!("give {} to the user {owner}", path.display()), error)),
        None => Ok(()),
    };
    for number in 0..mail.users {
        let own = settings.directory.join("mail").join(user(number));
        for part in ["cur", "new", "tmp"] {
            files::create_dir_all(&own.join(part))?;
            give(&own.join(part))?;
        }
        give(&own)?;
        for message in 0..mail.messages {
            let path = own.join("cur").join(format!("{message}.nearmetal:2,S"));
            files::write(&path, mail.message(number, message))?;
            give(&path)?;
        }
    }
    Ok(())
}

/// What Dovecot 2.4 is told: one password for all, and a mailbox by the user's name (doc.dovecot.org/2.4, "Settings Reference").
/// Messages are on the disk before they count as appended (`mail_fsync`), as mail servers have it. Of its log only errors are
/// kept, on standard error.
fn configuration(settings: &Settings) -> String {
    let (mail, run) = (settings.path("mail"), settings.path("run"));
    format!(
        "dovecot_config_version = 2.4.0\ndovecot_storage_version = 2.4.0\nprotocols = imap\nssl = no\n\
         auth_allow_cleartext = yes\nbase_dir = {run}\nstate_dir = {run}\ndefault_internal_user = root\n\
         default_internal_group = root\ndefault_login_user = nobody\nlog_path = /dev/stderr\n\
         info_log_path = /dev/null\nmail_driver = maildir\nmail_path = {mail}/%{{user}}\nmail_uid = {NOBODY}\nmail_gid = {NOBODY}\nfirst_valid_uid = {NOBODY}\n\
         first_valid_gid = {NOBODY}\nmail_fsync = always\nmail_max_userip_connections = {CLIENTS}\n\
         default_client_limit = {CLIENTS}\ndefault_process_limit = {LOGINS}\n\
         passdb static {{\n  password = {PASSWORD}\n}}\n\
         userdb static {{\n  fields {{\n    uid = {NOBODY}\n    gid = {NOBODY}\n    home = {mail}/%{{user}}\n  }}\n}}\n\
         service anvil {{\n  chroot =\n}}\n\
         service imap-login {{\n  chroot =\n  restart_request_count = unlimited\n  process_min_avail = 1\n  \
         inet_listener imap {{\n    port = {}\n  }}\n  inet_listener imaps {{\n    port = 0\n  }}\n}}\n\
         service imap {{\n  process_limit = {CLIENTS}\n}}\n",
        settings.port
    )
}
