//! Tags on the command line: `KEY=VALUE`.

pub(crate) fn parse_tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not a tag; use KEY=VALUE, such as app=db1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read() {
        assert_eq!(parse_tag("app=db=1"), Ok(("app".into(), "db=1".into())));
        assert_eq!(parse_tag("app="), Ok(("app".into(), String::new())));
        for bad in ["app", "=db", ""] {
            assert!(parse_tag(bad).unwrap_err().contains("KEY=VALUE"), "{bad}");
        }
    }
}
