//! `nearmetal-probe serve`

use nearmetal_probe::error::ProbeError;
use nearmetal_probe::serve::{mail, web};

use crate::cli::serve::ServeCommand;

/// Runs a server until it ends, which is an error.
pub(crate) fn run(command: &ServeCommand) -> Result<(), ProbeError> {
    match command {
        ServeCommand::Web { site, large_files_from, draw, server } => {
            let serving = web::Serving { site: site.site(), large: *large_files_from, draw: *draw };
            web::serve(&server.web(), &serving)
        }
        ServeCommand::Mail { mail, server } => mail::serve(&server.mail(), mail.mail()),
    }
}
