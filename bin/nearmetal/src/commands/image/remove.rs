//! `nearmetal image remove`.

use std::path::PathBuf;

use nearmetal_host::HostFs;
use nearmetal_image::{FindError, users};

use crate::exit_status::ExitStatus;
use crate::image::{Answer, Document, HostArgs, Removal, ask_all, status, store_of};
use crate::printer::Printer;
use crate::style::Format;

/// Remove an image from hosts, unless something there uses it
///
/// A host refuses while a process has the image open, a qcow2 delta is based on it, or a definition of libvirt mentions
/// it, and names who. Deltas are looked for in the store, in `/var/lib/libvirt/images`, behind every path in libvirt's
/// definitions, and in `--deltas`; nearmetal cannot know of others.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The image, by readable name, hash or the first digits of it
    #[arg(value_name = "IMAGE")]
    image: String,
    #[command(flatten)]
    hosts: HostArgs,
    /// Another directory in which guests' deltas are; may be repeated
    #[arg(long, value_name = "DIR")]
    deltas: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the command.
pub(crate) fn remove(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let Some(targets) = args.hosts.targets_or_here(printer)? else { return Ok(ExitStatus::WrongUse) };
    let mut arguments = vec!["image".to_owned(), "remove".to_owned(), "--format=json".to_owned()];
    arguments.push(format!("--directory={}", args.hosts.directory.display()));
    arguments.extend(args.deltas.iter().map(|directory| format!("--deltas={}", directory.display())));
    arguments.push(args.image.clone());
    let answers = ask_all(&targets, &arguments, &|| remove_here(args), printer);
    match args.format {
        Format::Json => {
            let document = Document { schema: "nearmetal.image-removal/1", hosts: &answers };
            printer.data(&serde_json::to_string_pretty(&document)?);
        }
        Format::Text => answers.iter().for_each(|answer| show(answer, &args.image, printer)),
    }
    let used = |removal: &Removal| !removal.users.is_empty();
    Ok(status(&answers, |removal| if used(removal) { ExitStatus::Refused } else { ExitStatus::Done }))
}

fn remove_here(args: &Args) -> Result<Removal, String> {
    let store = store_of(&args.hosts.directory);
    let image = match store.find(&args.image) {
        Ok(found) => found.image,
        // A host that does not have it is as it should be; a name that may mean several images is nobody's wish.
        Err(FindError::None { .. }) => return Ok(Removal { image: None, removed: false, users: Vec::new() }),
        Err(problem) => return Err(problem.to_string()),
    };
    let mut directories = args.deltas.clone();
    directories.push(store.directory().to_owned());
    let users = users(&HostFs::live(), &image, &directories).map_err(|error| error.to_string())?;
    let removed = users.is_empty();
    if removed {
        store.remove(&image).map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
    }
    Ok(Removal { image: Some(image), removed, users })
}

fn show(answer: &Answer<Removal>, wanted: &str, printer: &mut Printer) {
    let host = &answer.host;
    match &answer.answer {
        None => printer.important(&format!("{host}: {}", answer.problem.as_deref().unwrap_or("no answer"))),
        Some(Removal { image: None, .. }) => printer.data(&format!("{host}: no image `{wanted}`")),
        Some(Removal { image: Some(image), removed: true, .. }) => printer.data(&format!("{host}: removed {image}")),
        Some(Removal { image: Some(image), users, .. }) => {
            printer.data(&format!("{host}: {image} is in use and stays:"));
            users.iter().for_each(|user| printer.data(&format!("  {user}")));
        }
    }
}
