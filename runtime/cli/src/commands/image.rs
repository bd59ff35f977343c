//! `pull`, `images`, `rmi` and `image`: what is here, what comes, and what goes.

use std::process::ExitCode;

use futures::future::try_join_all;
use mainstay_admin::Client;
use mainstay_messages::admin::{End, Item, StreamRequest};
use mainstay_messages::error::Kind;
use mainstay_messages::image::{Image, ImageId, ImageName, PullPolicy, PullSpec};
use mainstay_messages::{Error, Timestamp};
use serde_json::json;

use super::archive;
use crate::arguments::Format;
use crate::arguments::image::{ImageCommand, Images, ListImagesArguments, PullArguments};
use crate::connection::Context;
use crate::failure::{Failure, Result};
use crate::output::{self, tell_failure};
use crate::progress::{Progress, Shown};
use crate::table::{Align, Table};
use crate::tree;
use crate::view::{self, ImageView};
use crate::words::{age, bytes};

/// What a table shows for an image without a name.
const NO_NAME: &str = "<none>";

/// `mainstay image`
pub(super) async fn run(context: &Context, command: ImageCommand) -> Result<ExitCode> {
    match command {
        ImageCommand::Import(arguments) => archive::import(context, arguments).await,
        ImageCommand::Export(arguments) => archive::export(context, arguments).await,
        ImageCommand::Inspect(arguments) => inspect(context, arguments).await,
        ImageCommand::Verify { images } => verify(context, images).await,
        ImageCommand::Gc => collect(context).await,
    }
}

/// `mainstay pull`: one after the other; the layers of each come side by side.
pub(super) async fn pull(context: &Context, arguments: PullArguments) -> Result<ExitCode> {
    let client = context.daemon().await?;
    for image in arguments.images {
        let spec = PullSpec {
            image: image.clone(),
            platform: arguments.platform.clone(),
            credentials: arguments.creds.clone(),
        };
        let shown = match (context.format(), arguments.quiet) {
            (Format::Json, _) => Shown::Json,
            (Format::Text, true) => Shown::Not,
            (Format::Text, false) => Shown::ToPeople,
        };
        let id = fetch(&client, spec, shown).await?;
        let text = || if arguments.quiet { format!("{id}\n") } else { format!("{image} is here: {id}\n") };
        let line = match context.format() {
            Format::Text => text(),
            Format::Json => view::line(&json!({ "image": image.as_str(), "id": id.0 })),
        };
        output::print(&line).map_err(Failure::Output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes sure that an image is here before a container is made of it, as its policy says.
pub(super) async fn provide(
    client: &Client,
    image: &ImageName,
    platform: Option<String>,
    policy: PullPolicy,
) -> Result<()> {
    let spec = PullSpec { platform, ..PullSpec::new(image.clone()) };
    spec.check()?;
    let wanted = match policy {
        PullPolicy::Never => false,
        PullPolicy::Always => true,
        PullPolicy::Missing => match client.inspect_image(image.clone()).await {
            Ok(_) => false,
            Err(Error::NotFound { kind: Kind::Image, .. }) => true,
            Err(error) => return Err(error.into()),
        },
    };
    if wanted {
        fetch(client, spec, Shown::ToPeople).await?;
    }
    Ok(())
}

async fn fetch(client: &Client, spec: PullSpec, shown: Shown) -> Result<ImageId> {
    spec.check()?;
    let name = spec.image.clone();
    let mut stream = client.open(StreamRequest::PullImage(Box::new(spec))).await?;
    let mut progress = Progress::new(name.as_str(), shown);
    while let Some(item) = stream.next().await {
        if let Item::Pull(step) = item {
            progress.show(&step)?;
        }
    }
    progress.end();
    match stream.end().await? {
        End::Images(mut images) if images.len() == 1 => Ok(images.remove(0)),
        _ => Err(Error::internal("the daemon", "it ended a pull without an image").into()),
    }
}

/// `mainstay images`
pub(super) async fn list(context: &Context, arguments: &ListImagesArguments) -> Result<ExitCode> {
    let mut images = context.daemon().await?.list_images().await?;
    images.sort_by_key(|image| std::cmp::Reverse(image.pulled_at));
    let text = || match arguments.quiet {
        true => images.iter().map(|image| format!("{}\n", image.id)).collect(),
        false => table(&images, super::now()),
    };
    super::print(context.format(), text, &images.iter().map(ImageView::from).collect::<Vec<_>>())
}

fn table(images: &[Image], now: Timestamp) -> String {
    let mut table = Table::new([
        ("IMAGE", Align::Left),
        ("ID", Align::Left),
        ("PLATFORM", Align::Left),
        ("CREATED", Align::Left),
        ("SIZE", Align::Right),
        ("UNPACKED", Align::Right),
    ]);
    for image in images {
        let names: Vec<_> = if image.tags.is_empty() {
            vec![NO_NAME]
        } else {
            image.tags.iter().map(|tag| familiar(tag)).collect()
        };
        for name in names {
            table.row([
                name.to_owned(),
                image.id.short().to_owned(),
                image.platform.clone(),
                image.created_at.map_or_else(|| "-".to_owned(), |at| age(at, now)),
                bytes(image.blob_bytes),
                bytes(image.unpacked_bytes),
            ]);
        }
    }
    table.to_string()
}

/// A name as people write it, without what is understood.
fn familiar(name: &str) -> &str {
    let name = name.strip_prefix("docker.io/").unwrap_or(name);
    name.strip_prefix("library/").unwrap_or(name)
}

/// `mainstay rmi`
pub(super) async fn remove(context: &Context, arguments: Images) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let mut failed = false;
    for image in arguments.images {
        match client.remove_image(image).await {
            Ok(removed) => {
                let text: String =
                    (removed.names.iter().map(|name| format!("untagged {}\n", familiar(name))))
                        .chain(removed.images.iter().map(|id| format!("removed {id}\n")))
                        .collect();
                let line = match context.format() {
                    Format::Text => text,
                    Format::Json => view::line(&json!({
                        "names": removed.names,
                        "images": removed.images.iter().map(|id| &id.0).collect::<Vec<_>>(),
                    })),
                };
                output::print(&line).map_err(Failure::Output)?;
            }
            Err(error) => {
                tell_failure(&error);
                failed = true;
            }
        }
    }
    if failed { Err(Failure::Partly) } else { Ok(ExitCode::SUCCESS) }
}

async fn inspect(context: &Context, arguments: Images) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let images = try_join_all(arguments.images.into_iter().map(|image| client.inspect_image(image))).await?;
    let views: Vec<_> = images.iter().map(ImageView::from).collect();
    let text = || {
        // As in `view::document`: there is always a JSON form.
        let values = views.iter().map(|view| serde_json::to_value(view).unwrap_or_default());
        values.map(|value| tree::text(&value)).collect::<Vec<_>>().join("\n")
    };
    super::print(context.format(), text, &views)
}

async fn verify(context: &Context, images: Vec<ImageName>) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let damages = match images.is_empty() {
        true => client.verify_images(None).await?,
        false => {
            try_join_all(images.into_iter().map(|image| client.verify_images(Some(image)))).await?.concat()
        }
    };
    let text = || match damages.is_empty() {
        true => "nothing is damaged\n".to_owned(),
        false => {
            let mut table = Table::new([
                ("DAMAGED", Align::Left),
                ("WHAT IS WRONG", Align::Left),
                ("OF IMAGE", Align::Left),
            ]);
            for damage in &damages {
                let images: Vec<_> = damage.images.iter().map(|id| id.short()).collect();
                table.row([damage.digest.clone(), damage.reason.clone(), images.join(", ")]);
            }
            table.to_string()
        }
    };
    super::print(context.format(), text, &damages)?;
    Ok(if damages.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn collect(context: &Context) -> Result<ExitCode> {
    let collected = context.daemon().await?.collect_images().await?;
    let text = || {
        format!("{} freed: {} blobs, {} layers\n", bytes(collected.bytes), collected.blobs, collected.layers)
    };
    super::print(context.format(), text, &collected)
}
