//! `nearmetal image verify`.

use nearmetal_image::{Store, Verified};
use nearmetal_units::Bytes;

use crate::exit_status::ExitStatus;
use crate::image::{Answer, Document, HostArgs, ask_all, status, store_of};
use crate::printer::Printer;
use crate::style::Format;

/// Read images again and check that their content still has their hash
///
/// Reads every image of each host, or those that are named, from its beginning to its end. Names the damaged ones and
/// where they are damaged; the exit code is then 1. To mend one that nobody uses, push it again: only what is damaged is
/// sent.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Images, by readable name, hash or the first digits of it [default: all]
    #[arg(value_name = "IMAGE")]
    images: Vec<String>,
    #[command(flatten)]
    hosts: HostArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the command.
pub(crate) fn verify(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let Some(targets) = args.hosts.targets_or_here(printer)? else { return Ok(ExitStatus::WrongUse) };
    let store = store_of(&args.hosts.directory);
    let mut arguments = vec!["image".to_owned(), "verify".to_owned(), "--format=json".to_owned()];
    arguments.push(format!("--directory={}", args.hosts.directory.display()));
    arguments.extend(args.images.iter().cloned());
    let answers = ask_all(&targets, &arguments, &|| read(&store, &args.images), printer);
    match args.format {
        Format::Json => {
            let document = Document { schema: "nearmetal.image-verification/1", hosts: &answers };
            printer.data(&serde_json::to_string_pretty(&document)?);
        }
        Format::Text => answers.iter().for_each(|answer| show(answer, printer)),
    }
    let all_right = |images: &Vec<Verified>| images.iter().all(|image| image.right);
    Ok(status(&answers, |images| if all_right(images) { ExitStatus::Done } else { ExitStatus::Findings }))
}

fn read(store: &Store, wanted: &[String]) -> Result<Vec<Verified>, String> {
    let mut images = Vec::new();
    if wanted.is_empty() {
        let all = store.list().map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
        images.extend(all.into_iter().map(|image| image.image));
    }
    for name in wanted {
        images.push(store.find(name).map_err(|error| error.to_string())?.image);
    }
    Ok(images.iter().map(|image| store.verify(image, |_| ())).collect())
}

fn show(answer: &Answer<Vec<Verified>>, printer: &mut Printer) {
    let host = &answer.host;
    let Some(images) = &answer.answer else {
        printer.important(&format!("{host}: {}", answer.problem.as_deref().unwrap_or("no answer")));
        return;
    };
    if images.is_empty() {
        printer.data(&format!("{host}: no images"));
    }
    for image in images {
        let name = image.name.as_deref().unwrap_or("?");
        let what = match (&image.problem, image.right, image.damaged.as_slice()) {
            (Some(problem), ..) => format!("✗ {problem}"),
            (None, true, _) => "✓ right".to_owned(),
            (None, false, []) => "✗ damaged; where is unknown, since its manifest is missing too".to_owned(),
            (None, false, [first, rest @ ..]) => {
                let more = if rest.is_empty() { String::new() } else { format!(" and {} more places", rest.len()) };
                format!("✗ damaged within {} after byte {first}{more}", Bytes::new(nearmetal_image::PIECE as u64))
            }
        };
        printer.data(&format!("{host}: {} {name}: {what}", image.image.short()));
    }
}
