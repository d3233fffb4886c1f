//! The merged file system of an image on disk.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::tree::{Node, Resolved, Tree};

impl Tree {
    /// Writes the tree below an existing, empty directory: directories and regular files only. A link to a file within
    /// the tree becomes a copy of it, other links are left out. Files get mode 0644, directories 0755.
    ///
    /// # Errors
    /// When a file or directory cannot be written. [`io::ErrorKind::AlreadyExists`] is that of a file system that does
    /// not distinguish two paths of the image, such as one without letter case; the error names one of them.
    pub fn write_to(&self, directory: &Path) -> io::Result<()> {
        let mut made = HashSet::new();
        for (path, node) in self.entries() {
            // Keys hold no `..`, no empty component and no NUL, so the target is always below the directory, and no
            // link is ever made in it.
            let target = Path::new(path.as_ref());
            let content = match node {
                Node::Directory => {
                    make_directories(directory, target, &mut made)?;
                    continue;
                }
                Node::File(content) => content,
                Node::Link(_) => match self.resolve(&path) {
                    Resolved::File(content) => content,
                    Resolved::Directory | Resolved::Missing => continue,
                },
            };
            if let Some(parent) = target.parent() {
                make_directories(directory, parent, &mut made)?;
            }
            let mut file = File::options()
                .write(true)
                .create_new(true)
                .open(directory.join(target))
                .map_err(|error| naming(&error, target))?;
            io::copy(&mut content.reader(), &mut file)?;
        }
        Ok(())
    }
}

/// Makes the directories on the way to `path`, and `path`, below `root`; adds them to `made`. One that is there but was
/// not made has another name in the image: the contents of the two must not be mixed.
fn make_directories(root: &Path, path: &Path, made: &mut HashSet<PathBuf>) -> io::Result<()> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|directory| !directory.as_os_str().is_empty() && !made.contains(*directory))
        .collect();
    for directory in missing.into_iter().rev() {
        std::fs::create_dir(root.join(directory)).map_err(|error| naming(&error, directory))?;
        made.insert(directory.to_owned());
    }
    Ok(())
}

/// An error with the path that cannot be written.
fn naming(error: &io::Error, path: &Path) -> io::Error {
    let kind = error.kind();
    let why = match kind {
        io::ErrorKind::AlreadyExists => {
            "the image has another path that differs from it only by case, and the file system does not distinguish them"
                .to_owned()
        }
        _ => error.to_string(),
    };
    io::Error::new(kind, format!("cannot write {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::tree::tests::{file, link, tree};

    #[test]
    fn a_tree_is_written_out_without_links() {
        let directory = tempfile::tempdir().unwrap();
        tree(&[
            ("d", Node::Directory),
            ("d/f", file("content")),
            ("l", link("d/f")),
            ("host", link("/etc/passwd")),
            ("deep/er/f", file("x")),
        ])
        .write_to(directory.path())
        .unwrap();
        let read = |path: &str| std::fs::read_to_string(directory.path().join(path)).ok();
        assert_eq!(read("d/f").as_deref(), Some("content"));
        assert_eq!(read("l").as_deref(), Some("content"));
        assert_eq!(read("deep/er/f").as_deref(), Some("x"));
        assert!(!directory.path().join("host").exists());
        assert!(!directory.path().join("l").is_symlink());
    }

    #[test]
    fn a_path_that_the_file_system_takes_for_another_is_named() {
        let tree = tree(&[("configs/a.yaml", file("x")), ("index.yaml", file("y"))]);
        // Without letter case, what `Configs` or `Index.yaml` became is found under these names.
        for (found, is_directory) in [("configs", true), ("index.yaml", false)] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(found);
            if is_directory {
                std::fs::create_dir(path).unwrap();
            } else {
                std::fs::write(path, "").unwrap();
            }
            let error = tree.write_to(directory.path()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            let begin = format!("cannot write {found}: the image has another path");
            assert!(error.to_string().starts_with(&begin), "{error}");
        }
    }
}
