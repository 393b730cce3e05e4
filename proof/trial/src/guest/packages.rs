//! Debian packages that a trial unpacks for itself: they are not installed here.

use crate::process::run;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// The tree of files of a package, at `root`; downloaded, and completed by `prepare`, if it is not there already.
pub(crate) fn unpacked(
    package: &str,
    root: PathBuf,
    prepare: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    if root.exists() {
        return Ok(root);
    }
    println!("downloading {package} to {}", root.display());
    let draft = PathBuf::from(format!("{}.{}", root.display(), std::process::id()));
    std::fs::create_dir_all(&draft)?;
    let shown = draft.display().to_string();
    run(&["env", "-C", &shown, "apt-get", "download", "-qq", package])?;
    run(&["sh", "-ec", "dpkg-deb -x \"$1\"/*.deb \"$1/root\"", "sh", &shown])?;
    prepare(&draft.join("root"))?;
    std::fs::rename(draft.join("root"), &root)?;
    std::fs::remove_dir_all(draft)?;
    Ok(root)
}
