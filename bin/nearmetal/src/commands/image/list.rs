//! `nearmetal image list`.

use nearmetal_image::StoredImage;
use nearmetal_units::Bytes;

use crate::exit_status::ExitStatus;
use crate::image::{Answer, Document, HostArgs, ask_all, status, store_of};
use crate::printer::Printer;
use crate::style::Format;

/// Show the images of each host
///
/// Shows this machine's images unless hosts are named. Reads no image's content: `nearmetal image verify` does.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    hosts: HostArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the command.
pub(crate) fn list(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let Some(targets) = args.hosts.targets_or_here(printer)? else { return Ok(ExitStatus::WrongUse) };
    let store = store_of(&args.hosts.directory);
    let here = || store.list().map_err(|error| format!("{:#}", anyhow::Error::from(error)));
    let directory = args.hosts.directory.display();
    let arguments =
        ["image".to_owned(), "list".to_owned(), "--format=json".to_owned(), format!("--directory={directory}")];
    let answers = ask_all(&targets, &arguments, &here, printer);
    match args.format {
        Format::Json => {
            let document = Document { schema: "nearmetal.image-list/1", hosts: &answers };
            printer.data(&serde_json::to_string_pretty(&document)?);
        }
        Format::Text => answers.iter().for_each(|answer| show(answer, printer)),
    }
    Ok(status(&answers, |_| ExitStatus::Done))
}

fn show(answer: &Answer<Vec<StoredImage>>, printer: &mut Printer) {
    let host = &answer.host;
    match (&answer.answer, &answer.problem) {
        (Some(images), _) if images.is_empty() => printer.data(&format!("{host}: no images")),
        (Some(images), _) => {
            printer.data(&format!("{host}:"));
            for image in images {
                printer.data(&format!(
                    "  {}  {:>10} on the disk of {:>10}  {}",
                    image.image,
                    Bytes::new(image.allocated).to_string(),
                    Bytes::new(image.length).to_string(),
                    image.name.as_deref().unwrap_or("?")
                ));
            }
        }
        (None, problem) => {
            printer.important(&format!("{host}: {}", problem.as_deref().unwrap_or("no answer")));
        }
    }
}
