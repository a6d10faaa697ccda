//! nginx with a generated site.

use nearmetal_host::files;

use super::{Settings, run, workers};
use crate::error::ProbeError;
use crate::load::site::Site;

/// Where Debian has it.
pub const PROGRAM: &str = "/usr/sbin/nginx";
/// Connections of one worker; a slice has some hundred at most.
const CONNECTIONS: u32 = 16_384;

/// Writes the site and serves it.
///
/// # Errors
/// The directory is not empty or cannot be written, or the server ended.
pub fn serve(settings: &Settings, site: Site) -> Result<(), ProbeError> {
    settings.prepare()?;
    let root = settings.directory.join("site");
    for file in site.files() {
        let path = root.join(&file.path()[1..]);
        if let Some(directory) = path.parent() {
            files::create_dir_all(directory)?;
        }
        files::write(&path, site.contents(&file))?;
    }
    let configuration = configuration(settings, workers()?);
    run(&settings.program, (&settings.directory.join("nginx.conf"), &configuration), &[])
}

/// What nginx is told: no log, and connections that stay open for the whole run (nginx.org/en/docs/http/ngx_http_core_module).
fn configuration(settings: &Settings, workers: usize) -> String {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("    {name}_temp_path {};\n", settings.path(&format!("temporary-{name}"))))
        .concat();
    format!(
        "worker_processes {workers};\nworker_rlimit_nofile {};\ndaemon off;\nuser root;\npid {};\nerror_log stderr crit;\n\
         events {{ worker_connections {CONNECTIONS}; }}\nhttp {{\n    access_log off;\n    sendfile on;\n    tcp_nopush on;\n    \
         keepalive_timeout 3600s;\n    keepalive_requests 1000000000;\n    default_type application/octet-stream;\n{temporary}    \
         server {{\n        listen {};\n        root {};\n    }}\n}}\n",
        2 * CONNECTIONS,
        settings.path("nginx.pid"),
        settings.port,
        settings.path("site"),
    )
}
