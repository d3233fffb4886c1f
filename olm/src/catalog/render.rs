//! `olm catalog render`.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use olm_fbc::{Catalog, write};

use crate::input::CatalogFiles;
use crate::output::{Outcome, Verdict, print};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Directories or files of catalogs
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Form of the catalog
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Form {
    /// A stream of indented JSON objects.
    #[default]
    Json,
    /// One line of JSON for each object.
    Jsonl,
    /// YAML documents.
    Yaml,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut catalog = Catalog::default();
    for path in &arguments.paths {
        load(&CatalogFiles::open(path)?, &mut catalog)
            .with_context(|| format!("render reference {:?}", path.display().to_string()))?;
    }
    print(&match arguments.output {
        Form::Json => write::json(&catalog),
        Form::Jsonl => write::json_lines(&catalog),
        Form::Yaml => write::yaml(&catalog),
    })?;
    Ok(Verdict::Good)
}

fn load(files: &CatalogFiles, catalog: &mut Catalog) -> anyhow::Result<()> {
    files.read(|file, meta| {
        let added = meta
            .map_err(olm_fbc::LoadError::from)
            .and_then(|meta| catalog.add(meta));
        match added {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                let place = format!("{file}:{}", error.line());
                ControlFlow::Break(anyhow::Error::new(error).context(place))
            }
        }
    })
}
