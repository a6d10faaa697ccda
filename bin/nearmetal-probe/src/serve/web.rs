//! nginx with a generated site.

use std::net::SocketAddr;

use nearmetal_host::files;

use super::{Settings, run, workers};
use crate::error::ProbeError;
use crate::load::site::{CLASSES, Site};

/// Where Debian has it.
pub const PROGRAM: &str = "/usr/sbin/nginx";
/// Connections of one worker; a slice has some hundred at most.
const CONNECTIONS: u32 = 16_384;

/// The class of files that come from another server, where there is one: the largest.
const LARGE: usize = CLASSES.len() - 1;

/// Writes the site and serves it; the largest files come from the server at `large`, if there is one, which has the same site.
///
/// # Errors
/// The directory is not empty or cannot be written, or the server ended.
pub fn serve(settings: &Settings, site: Site, large: Option<SocketAddr>) -> Result<(), ProbeError> {
    settings.prepare()?;
    let root = settings.directory.join("site");
    for file in site.files().filter(|file| large.is_none() || file.class != LARGE) {
        let path = root.join(&file.path()[1..]);
        if let Some(directory) = path.parent() {
            files::create_dir_all(directory)?;
        }
        files::write(&path, site.contents(&file))?;
    }
    let configuration = configuration(settings, workers()?, large);
    run(&settings.program, (&settings.directory.join("nginx.conf"), &configuration), &[])
}

/// What nginx is told: no log, and connections that stay open for the whole run (nginx.org/en/docs/http/ngx_http_core_module),
/// to the other server too (ngx_http_upstream_module). Files from there pass through memory and are not kept.
fn configuration(settings: &Settings, workers: usize, large: Option<SocketAddr>) -> String {
    let (others, passed) = match large {
        None => (String::new(), String::new()),
        Some(address) => (
            format!("    upstream files {{\n        server {address};\n        keepalive 64;\n    }}\n"),
            format!(
                "        location ~ ^/d[0-9]+/c{LARGE}s {{\n            proxy_pass http://files;\n            \
                 proxy_http_version 1.1;\n            proxy_set_header Connection \"\";\n            \
                 proxy_max_temp_file_size 0;\n        }}\n"
            ),
        ),
    };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("    {name}_temp_path {};\n", settings.path(&format!("temporary-{name}"))))
        .concat();
    format!(
        "worker_processes {workers};\nworker_rlimit_nofile {};\ndaemon off;\nuser root;\npid {};\nerror_log stderr crit;\n\
         events {{ worker_connections {CONNECTIONS}; }}\nhttp {{\n    access_log off;\n    sendfile on;\n    tcp_nopush on;\n    \
         keepalive_timeout 3600s;\n    keepalive_requests 1000000000;\n    default_type application/octet-stream;\n{temporary}{others}    \
         server {{\n        listen {};\n        root {};\n{passed}    }}\n}}\n",
        2 * CONNECTIONS,
        settings.path("nginx.pid"),
        settings.port,
        settings.path("site"),
    )
}
