//! `serve`: definitions and help only.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use nearmetal_probe::serve::{Settings, mail, web};

use super::load::{MailArguments, SiteArguments};

#[derive(Debug, Subcommand)]
pub(crate) enum ServeCommand {
    /// Start nginx on a generated site, for `load http`
    Web {
        #[command(flatten)]
        site: SiteArguments,
        /// Pass on what is asked of the largest files (below-1mb) to the web server at this address, which serves the same site
        #[arg(long, value_name = "ADDRESS:PORT")]
        large_files_from: Option<SocketAddr>,
        /// Draw so many paths as `load http` does, up to 1000000, into the file `paths` of the directory: for other programs that ask
        #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
        draw: u32,
        #[command(flatten)]
        server: ServerArguments,
    },
    /// Start Dovecot on generated mail, for `load imap`; as root
    Mail {
        #[command(flatten)]
        mail: MailArguments,
        #[command(flatten)]
        server: ServerArguments,
    },
}

/// Where it is.
#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    /// Where contents and configuration go: a directory that is empty or not there
    #[arg(long, value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Port to listen at, on all addresses
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// The server's program [default: as Debian has it]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

impl ServerArguments {
    fn settings(&self, program: &str) -> Settings {
        let program = self.program.clone().unwrap_or_else(|| PathBuf::from(program));
        Settings { directory: self.directory.clone(), port: self.port, program }
    }

    /// For nginx.
    pub(crate) fn web(&self) -> Settings {
        self.settings(web::PROGRAM)
    }

    /// For Dovecot.
    pub(crate) fn mail(&self) -> Settings {
        self.settings(mail::PROGRAM)
    }
}
