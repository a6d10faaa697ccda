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

/// Paths for a program that asks from a list, one a line: in the directory of the contents.
const PATHS: &str = "paths";
/// A line for each answer that was not 200, its status and what was asked for; in the same directory.
const OTHER_ANSWERS: &str = "other-answers";

/// What is served, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Serving {
    /// The site.
    pub site: Site,
    /// Where the largest files come from: a server with the same site; `None`: from here.
    pub large: Option<SocketAddr>,
    /// Paths that are drawn for a program that asks from a list.
    pub draw: u32,
}

/// Writes the site, and the list of paths if one is wanted, and serves it.
///
/// # Errors
/// The directory is not empty or cannot be written, or the server ended.
pub fn serve(settings: &Settings, serving: &Serving) -> Result<(), ProbeError> {
    let Serving { site, large, draw } = *serving;
    settings.prepare()?;
    let root = settings.directory.join("site");
    for file in site.files().filter(|file| large.is_none() || file.class != LARGE) {
        let path = root.join(&file.path()[1..]);
        if let Some(directory) = path.parent() {
            files::create_dir_all(directory)?;
        }
        files::write(&path, site.contents(&file))?;
    }
    if draw > 0 {
        let paths = site.drawn(site.seed).take(draw as usize).map(|file| file.path() + "\n");
        files::write(&settings.directory.join(PATHS), paths.collect::<String>())?;
    }
    let configuration = configuration(settings, workers()?, large);
    run(&settings.program, (&settings.directory.join("nginx.conf"), &configuration), &[])
}

/// What nginx is told: no log but of answers that are not 200 (ngx_http_log_module), and connections that stay open for the whole run (nginx.org/en/docs/http/ngx_http_core_module),
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
         events {{ worker_connections {CONNECTIONS}; }}\nhttp {{\n    map $status $other {{ 200 0; default 1; }}\n    \
         log_format other '$status $request_uri';\n    access_log {} other if=$other;\n    sendfile on;\n    tcp_nopush on;\n    \
         keepalive_timeout 3600s;\n    keepalive_requests 1000000000;\n    default_type application/octet-stream;\n{temporary}{others}    \
         server {{\n        listen {};\n        root {};\n{passed}    }}\n}}\n",
        2 * CONNECTIONS,
        settings.path("nginx.pid"),
        settings.path(OTHER_ANSWERS),
        settings.port,
        settings.path("site"),
    )
}
