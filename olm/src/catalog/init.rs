//! `olm catalog init`.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use olm_author::lint;
use olm_fbc::check::Rule;
use olm_fbc::{Catalog, Icon, Package};

use super::CatalogFormat;
use crate::input::read;
use crate::output::{CommandResult, Status, note, print};

/// The largest description or icon that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Name of the package
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    package: String,
    /// Default channel of the package
    #[arg(short = 'c', long, default_value = "")]
    default_channel: String,
    /// File with the description, in Markdown
    #[arg(short, long, value_name = "FILE")]
    description: Option<PathBuf>,
    /// File with the icon: SVG, PNG, GIF, JPEG or WebP
    #[arg(short, long, value_name = "FILE")]
    icon: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: CatalogFormat,
}

pub(crate) fn run(arguments: &Arguments) -> CommandResult {
    let mut package = Package {
        name: arguments.package.clone(),
        default_channel: arguments.default_channel.clone(),
        ..Package::default()
    };
    if let Some(path) = &arguments.description {
        package.description = String::from_utf8_lossy(&read(path, MAX_FILE)?).into_owned();
    }
    if let Some(path) = &arguments.icon {
        let bytes = read(path, MAX_FILE)?;
        let Some(media_type) = Icon::media_type_of(&bytes) else {
            bail!("detected invalid type of {}: not an image", path.display());
        };
        package.icon = Some(Icon::of(&bytes, media_type));
    }
    let catalog = Catalog {
        packages: vec![package],
        ..Catalog::default()
    };
    for finding in lint::catalog(&catalog).findings {
        match finding.rule {
            Rule::PackageLabel => note(&format!("warning: {}", finding.message)),
            Rule::DefaultChannel => {
                note("warning: the package has no default channel: name one by --default-channel");
            }
            _ => {}
        }
    }
    print(&arguments.output.write(&catalog))?;
    Ok(Status::Success)
}
