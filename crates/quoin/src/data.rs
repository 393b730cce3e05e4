//! The data directory: `quoin.toml`, the tokens, and where everything is.

use quoin_cli::{Failure, Global, TOKEN_FILE};
use quoin_config::{Config, ReadConfig, read, write};
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

pub(crate) const CONFIG_FILE: &str = "quoin.toml";
/// The file of the token that grants access to `GET /metrics` only.
const METRICS_TOKEN_FILE: &str = "metrics_token";

/// A data directory.
#[derive(Clone, Debug)]
pub(crate) struct DataDir(PathBuf);

impl DataDir {
    /// The one `--data` names.
    pub(crate) fn of(global: &Global) -> Result<Self, Failure> {
        match &global.data {
            Some(path) => Ok(Self(path.clone())),
            None => Err(Failure::usage("no data directory", "--data was not given", "say which: --data DIR")),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn drive_paths(&self, config: &Config) -> Vec<PathBuf> {
        config.drives.iter().map(|drive| self.0.join(&drive.path)).collect()
    }

    pub(crate) fn has_config(&self) -> bool {
        self.file(CONFIG_FILE).exists()
    }

    pub(crate) fn read_config(&self) -> Result<Config, Failure> {
        self.read_config_with_lines().map(|read| read.config)
    }

    /// Reads and checks `quoin.toml`.
    pub(crate) fn read_config_with_lines(&self) -> Result<ReadConfig, Failure> {
        let path = self.file(CONFIG_FILE);
        let shown = path.display().to_string();
        let bytes = fs::read(&path).map_err(|error| {
            let next = "make an array there first: quoin init --data DIR; or check the directory";
            Failure::new("no array", &shown, format!("cannot read {shown}: {error}"), next)
        })?;
        read(&bytes).map_err(|fault| {
            let why = format!("{shown}, line {}: {}", fault.line, fault.why);
            Failure::new("configuration refused", &shown, why, fault.next)
        })
    }

    pub(crate) fn write_config(&self, config: &Config) -> Result<(), Failure> {
        let text = write(config).map_err(|error| self.unwritable(CONFIG_FILE, &error))?;
        self.write(CONFIG_FILE, text.as_bytes(), 0o644)
    }

    /// Adds a drive to `quoin.toml`, behind what is there.
    pub(crate) fn add_drive(&self, path: &str) -> Result<(), String> {
        let text = self.config_text()?;
        let added = format!("{}\n{}", text.trim_end_matches('\n').to_owned() + "\n", drive_table(path));
        // A file that lists its drives in another form cannot be added to so.
        match read(added.as_bytes()) {
            Ok(_) => self.write(CONFIG_FILE, added.as_bytes(), 0o644).map_err(|failure| failure.to_string()),
            Err(fault) => Err(format!("it cannot be added to quoin.toml as it is: {}", fault.why)),
        }
    }

    /// Removes a drive that [`DataDir::add_drive`] added.
    pub(crate) fn remove_drive(&self, path: &str) -> Result<(), String> {
        let text = self.config_text()?;
        let removed = text.replace(&format!("\n{}", drive_table(path)), "");
        self.write(CONFIG_FILE, removed.as_bytes(), 0o644).map_err(|failure| failure.to_string())
    }

    /// Takes a drive that left the pool out of `quoin.toml`: its table, whatever is in that. One that is not there is out.
    pub(crate) fn forget_drive(&self, path: &str) -> Result<(), String> {
        let text = self.config_text()?;
        let without = without_drive(&text, |listed| self.0.join(listed) == Path::new(path));
        if without == text {
            return Ok(());
        }
        match read(without.as_bytes()) {
            Ok(_) => {
                self.write(CONFIG_FILE, without.as_bytes(), 0o644).map_err(|failure| failure.to_string())
            }
            Err(fault) => Err(format!("quoin.toml cannot be changed as it is: {}", fault.why)),
        }
    }

    fn config_text(&self) -> Result<String, String> {
        let path = self.file(CONFIG_FILE);
        fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    }

    pub(crate) fn read_token(&self) -> Result<String, Failure> {
        let path = self.file(TOKEN_FILE);
        let shown = path.display().to_string();
        let refuse = |why: String| {
            Failure::new(
                "token not readable",
                &shown,
                why,
                "restore the file: any text of your choice, mode 0600",
            )
        };
        let token = fs::read_to_string(&path).map_err(|e| refuse(format!("cannot read {shown}: {e}")))?;
        if token.trim().is_empty() { Err(refuse(format!("{shown} is empty"))) } else { Ok(token) }
    }

    /// The token that grants access to `GET /metrics` only; created if it is missing or empty.
    pub(crate) fn metrics_token(&self) -> Result<String, Failure> {
        if let Ok(token) = fs::read_to_string(self.file(METRICS_TOKEN_FILE))
            && !token.trim().is_empty()
        {
            return Ok(token);
        }
        let token = self.new_token(METRICS_TOKEN_FILE)?;
        self.write(METRICS_TOKEN_FILE, token.as_bytes(), 0o600)?;
        Ok(token)
    }

    /// A random secret that cannot be guessed, for the file `name`.
    pub(crate) fn new_token(&self, name: &str) -> Result<String, Failure> {
        let mut bytes = [0u8; 32];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| self.unwritable(name, &error))?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).chain(["\n".to_owned()]).collect())
    }

    /// Writes a file of the data directory so that it is there after a crash, wholly or not at all.
    pub(crate) fn write(&self, name: &str, content: &[u8], mode: u32) -> Result<(), Failure> {
        let (path, new) = (self.file(name), self.file(&format!("{name}.new")));
        let write = || -> io::Result<()> {
            // NOTE: the content is durable before the name is: a crash leaves the old file or the new one.
            let mut file =
                fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&new)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            fs::File::open(path.parent().unwrap_or(&self.0))?.sync_all()
        };
        write().map_err(|error| self.unwritable(name, &error))
    }

    pub(crate) fn unwritable(&self, name: &str, error: &dyn std::error::Error) -> Failure {
        let shown = self.file(name).display().to_string();
        let why = format!("cannot write {shown}: {error}");
        Failure::new("data directory not writable", shown, why, "check permissions and free space")
    }
}

/// A drive as a table of `quoin.toml`.
fn drive_table(path: &str) -> String {
    format!("[[drive]]\npath = {}\n", toml::Value::from(path))
}

/// The text of a configuration without the tables of drives for whose path `is_it` is true, and the tables within these.
fn without_drive(text: &str, is_it: impl Fn(&str) -> bool) -> String {
    let header = |line: &str| line.trim_start().starts_with('[');
    let mut sections: Vec<Vec<&str>> = vec![Vec::new()];
    for line in text.split_inclusive('\n') {
        // Comments right above a header belong to it.
        if header(line) {
            let before = sections.last_mut().map(|section| {
                let comments =
                    section.iter().rev().take_while(|line| line.trim_start().starts_with('#')).count();
                section.split_off(section.len() - comments)
            });
            sections.push(before.unwrap_or_default());
        }
        if let Some(section) = sections.last_mut() {
            section.push(line);
        }
    }
    let (mut kept, mut is_within) = (String::new(), false);
    for section in sections {
        let name = section.iter().find(|line| header(line)).map_or("", |line| line.trim());
        if name.starts_with("[[drive]]") {
            let table = section.concat().parse::<toml::Table>().ok();
            let path = table.as_ref().and_then(|table| table.get("drive")?.get(0)?.get("path")?.as_str());
            is_within = path.is_some_and(&is_it);
        } else if !name.starts_with("[drive.") && !name.starts_with("[[drive.") {
            is_within = false;
        }
        if !is_within {
            kept.push_str(&section.concat());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_leaves_the_configuration_with_all_that_is_said_of_it_and_nothing_else() {
        let text = "name = \"a\"\n\n# The first.\n[[drive]]\npath = \"drives/drive-1\"\n\n# The second.\n[[drive]]\n\
                    path = \"/dev/sdb\" # in the middle\nrole = \"data\"\n\n[drive.emulate]\nmodel = \"15k\"\n\n\
                    [[drive]]\npath = \"/dev/sdc\"\n\n# Of space.\n[space]\nnotice_percent = 5\n";
        let without = without_drive(text, |path| path == "/dev/sdb");
        assert_eq!(
            without,
            "name = \"a\"\n\n# The first.\n[[drive]]\npath = \"drives/drive-1\"\n\n[[drive]]\npath = \"/dev/sdc\"\n\n\
             # Of space.\n[space]\nnotice_percent = 5\n"
        );
        assert_eq!(without_drive(text, |path| path == "/dev/sdd"), text);
        let last = without_drive(text, |path| path == "/dev/sdc");
        assert!(
            last.contains("[drive.emulate]") && last.ends_with("# Of space.\n[space]\nnotice_percent = 5\n"),
            "{last}"
        );
    }
}
