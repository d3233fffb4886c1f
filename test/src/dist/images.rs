//! `olm-test images …`: the images of the programs on the cluster, made without a container engine and without a base
//! image.
//!
//! An image holds its program, the certificate authorities of Mozilla and a user without rights. Only programs that are
//! not linked statically bring the libraries of this machine; those of a release bring none. Equal programs give equal
//! bytes, hence equal digests.

pub mod authorities;
pub mod contents;
mod libraries;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use olm_image::{
    Access, BuiltImage, Credentials, ImageBuilder, Images, LayerBuilder, Limits, Options, Pinned, Platform,
    Reference, Registries,
};
use tracing::info;

pub use self::libraries::libraries;
use super::build;

/// The programs that become images.
pub const PROGRAMS: [&str; 3] = ["catalogd", "operator-controller", "classic"];
/// The repository of the images in the shipped manifests, before the slash.
const REPOSITORY: &str = "olmv1";
/// The user the managers run as: neither root nor a user of the node.
const USER: &str = "65532:65532";
const USERS: &str = "root:x:0:0::/root:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin\n";
const GROUPS: &str = "root:x:0:\nnonroot:x:65532:\n";
/// The first place in which the TLS library looks for certificate authorities.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The settings of the C library's allocator in the managers' environment. Threads share two heaps instead of up to
/// eight for each core, because free memory cannot move between heaps (docs/design/performance.md). Large allocations
/// come from the kernel and return to it, so that the first large answer does not enlarge a heap.
pub const HEAPS: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "2"), ("MALLOC_MMAP_THRESHOLD_", "262144")];

/// The sub-commands of `images`.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "the arguments are described where they are defined")]
pub enum ImagesCommand {
    /// Write the programs on the cluster as OCI archives, from the programs beside this one.
    Build {
        /// The folder to write `NAME.tar` to.
        #[arg(long, default_value = "dist")]
        out: PathBuf,
        #[command(flatten)]
        source: Source,
    },
    /// Push them to a registry.
    Push {
        /// Registry and path above the images' names, for example `localhost:5000/olmv1`.
        prefix: String,
        #[command(flatten)]
        registry: RegistryArguments,
        #[command(flatten)]
        source: Source,
    },
}

/// The access to a registry.
#[derive(Debug, Clone, Default, Args)]
pub struct RegistryArguments {
    /// Speak plain HTTP to this registry.
    #[arg(long)]
    pub plain_http: bool,
    /// Folder with further certificate authorities, PEM.
    #[arg(long)]
    pub authorities: Option<PathBuf>,
    /// File with the credentials, as `docker login` writes it.
    #[arg(long)]
    pub credentials: Option<PathBuf>,
}

impl RegistryArguments {
    /// The access to the registry of images below a prefix.
    pub(super) fn access(&self, prefix: &str) -> Result<Access> {
        let mut registries = Registries::default();
        if self.plain_http {
            let reference = Reference::parse_familiar(&format!("{prefix}/any"))?;
            registries = registries.plain_http(reference.registry());
        }
        let credentials = match &self.credentials {
            Some(file) => {
                let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
                Credentials::parse_dockerconfigjson(&text)?
            }
            None => Credentials::default(),
        };
        Ok(Access {
            credentials: Arc::new(credentials),
            registries: Arc::new(registries),
            ..Access::default()
        })
    }
}

/// The input of the images.
#[derive(Debug, Clone, Args)]
pub struct Source {
    /// The folder with the programs; by default that of this program.
    #[arg(long)]
    pub programs: Option<PathBuf>,
    /// The images' tag.
    #[arg(long, default_value = concat!("v", env!("CARGO_PKG_VERSION")))]
    pub tag: String,
}

/// Runs a sub-command.
///
/// # Errors
/// When a program is missing, or an image cannot be written or pushed.
pub async fn run(command: ImagesCommand) -> Result<ExitCode> {
    match command {
        ImagesCommand::Build { out, source } => {
            tokio::task::spawn_blocking(move || write_archives(&out, &source)).await??;
        }
        ImagesCommand::Push {
            prefix,
            registry,
            source,
        } => {
            olm_platform::crypto::install();
            let access = registry.access(&prefix)?;
            let options = Options {
                authorities: registry.authorities,
                ..Options::new("olm-test")
            };
            for pinned in push(&Images::new(options), &prefix, &access, source).await? {
                info!("pushed {pinned}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes an archive for each program and returns their paths.
///
/// # Errors
/// When a program is missing or an archive cannot be written.
pub fn write_archives(out: &Path, source: &Source) -> Result<Vec<PathBuf>> {
    PROGRAMS
        .iter()
        .map(|name| write_archive(out, name, source))
        .collect()
}

/// Writes the archive of one program, `NAME.tar`, and returns its path.
///
/// # Errors
/// When the program is missing or the archive cannot be written.
pub fn write_archive(out: &Path, name: &str, source: &Source) -> Result<PathBuf> {
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let image = image(name, source)?;
    let archive = out.join(format!("{name}.tar"));
    // The kubelet expands short names to the long form.
    let reference = Reference::parse_familiar(&format!("{REPOSITORY}/{name}:{}", source.tag))?;
    image.write_archive(&archive, Some(&reference.to_string()))?;
    info!(
        "{} ({:.1} MB compressed, {})",
        archive.display(),
        megabytes(image.transfer_bytes()),
        image.digest()
    );
    Ok(archive)
}

/// Pushes the images and returns their references by digest.
///
/// # Errors
/// When a program is missing or the registry refuses an image.
pub async fn push(images: &Images, prefix: &str, access: &Access, source: Source) -> Result<Vec<Pinned>> {
    let mut pushed = Vec::new();
    for name in PROGRAMS {
        let reference = Reference::parse_familiar(&format!("{prefix}/{name}:{}", source.tag))?;
        let source = source.clone();
        let image = tokio::task::spawn_blocking(move || image(name, &source)).await??;
        pushed.push(images.push(&reference, &image, access).await?.pinned);
        // An image that cannot be pulled again is useless.
        if let Some(pinned) = pushed.last() {
            images.image(pinned, access, &Limits::catalog()).await?;
        }
    }
    Ok(pushed)
}

/// The image of one program.
fn image(name: &str, source: &Source) -> Result<BuiltImage> {
    let program = match &source.programs {
        Some(folder) => folder.join(name),
        None => std::env::current_exe()?.with_file_name(name),
    };
    if !program.is_file() {
        bail!("{} is not built yet", program.display());
    }
    let mut system = LayerBuilder::new();
    for library in libraries(&program)? {
        let path = library
            .to_str()
            .context("the path of a library is not text")?
            .to_owned();
        // Links on this machine lead to the same content in the image.
        system.file(&path, library, 0o755)?;
    }
    system.bytes(AUTHORITIES, authorities::pem(), 0o644)?;
    system.bytes("/etc/passwd", USERS, 0o644)?;
    system.bytes("/etc/group", GROUPS, 0o644)?;
    system.bytes("/etc/nsswitch.conf", "hosts: files dns\n", 0o644)?;
    system.directory("/tmp", 0o1777)?;

    let mut own = LayerBuilder::new();
    own.bytes(&format!("/{name}"), stripped(&program)?, 0o755)?;

    let image = HEAPS
        .iter()
        .fold(ImageBuilder::new(platform(&program)?.0), |image, (key, value)| {
            image.environment(*key, *value)
        });
    Ok(image
        .label("org.opencontainers.image.title", name)
        .label(
            "org.opencontainers.image.version",
            source.tag.trim_start_matches('v'),
        )
        .label("org.opencontainers.image.licenses", env!("CARGO_PKG_LICENSE"))
        .environment("SSL_CERT_FILE", AUTHORITIES)
        .entrypoint([format!("/{name}")])
        .user(USER)
        .working_directory("/")
        .layer(system.build()?)
        .layer(own.build()?)
        .build())
}

/// The program without debug symbols. One for macOS is as the linker wrote it: without them, and signed.
pub(super) fn stripped(program: &Path) -> Result<Vec<u8>> {
    let bytes = std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    if bytes.starts_with(&build::macos::MAGIC) {
        return Ok(bytes);
    }
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("program");
    let strip = build::tool_for(platform(program)?.1, "strip");
    let output = Command::new(&strip)
        .arg("-o")
        .args([&copy, program])
        .output()
        .with_context(|| format!("cannot run `{strip}`; install binutils"))?;
    if !output.status.success() {
        bail!("{strip}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(std::fs::read(copy)?)
}

/// The platform that a program runs on, and how compilers name its processor.
fn platform(program: &Path) -> Result<(Platform, &'static str)> {
    let mut header = [0; 20];
    std::fs::File::open(program)
        .and_then(|mut file| file.read_exact(&mut header))
        .with_context(|| format!("cannot read {}", program.display()))?;
    // The field `e_machine` of an ELF header.
    let (architecture, compilers) = match (header.starts_with(b"\x7fELF"), header[18]) {
        (true, 0x3e) => ("amd64", "x86_64"),
        (true, 0xb7) => ("arm64", "aarch64"),
        _ => bail!("{} is no program for Linux on amd64 or arm64", program.display()),
    };
    let platform = Platform {
        os: "linux".to_owned(),
        architecture: architecture.to_owned(),
    };
    Ok((platform, compilers))
}

#[expect(clippy::cast_precision_loss, reason = "a size to look at")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
