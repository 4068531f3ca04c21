//! The ini text of sigrok's `metadata` and DSView's `header`, and the rates in it.

/// One `[name]` and its `key=value` lines.
#[derive(Debug, PartialEq, Eq)]
pub struct Section {
    pub name: String,
    entries: Vec<(String, String)>,
}

impl Section {
    /// The last value given for `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries().filter(|(k, _)| *k == key).last().map(|(_, v)| v)
    }

    /// In the order of the file, repeated keys included.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

/// The error says which line is none of the three things it may be.
pub fn parse(text: &str) -> Result<Vec<Section>, String> {
    let mut sections: Vec<Section> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            sections.push(Section { name: name.into(), entries: Vec::new() });
        } else if let (Some((key, value)), Some(section)) = (line.split_once('='), sections.last_mut()) {
            section.entries.push((key.trim().into(), unescape(value.trim())));
        } else {
            return Err(format!("line {} is neither `[section]` nor `key=value` in a section: {line:?}", number + 1));
        }
    }
    Ok(sections)
}

/// The escapes of GLib's key files, which sigrok writes with; anything else stays as it is.
fn unescape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = match (c, chars.peek()) {
            ('\\', Some('s')) => Some(' '),
            ('\\', Some('n')) => Some('\n'),
            ('\\', Some('t')) => Some('\t'),
            ('\\', Some('r')) => Some('\r'),
            ('\\', Some('\\')) => Some('\\'),
            _ => None,
        };
        if escaped.is_some() {
            chars.next();
        }
        out.push(escaped.unwrap_or(c));
    }
    out
}

/// `100 MHz`, `33.333333 MHz`, `500k`, `200000` in Hz, rounded once; `None` if it is no such thing.
pub fn parse_rate(text: &str) -> Option<f64> {
    let text = text.trim();
    let text = text.strip_suffix("Hz").or_else(|| text.strip_suffix("hz")).unwrap_or(text).trim_end();
    let exponent = match text.chars().last()? {
        'k' | 'K' => 3,
        'm' | 'M' => 6,
        'g' | 'G' => 9,
        _ => 0,
    };
    let number = if exponent > 0 { text[..text.len() - 1].trim_end() } else { text };
    if !number.ends_with(|c: char| c.is_ascii_digit())
        || number.contains(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '-'))
    {
        return None;
    }
    // One conversion, so that 33.333333 MHz is 33333333 Hz to the last bit.
    format!("{number}e{exponent}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_keys_and_escapes() {
        let text = "# made by hand\n[global]\nsigrok version = 0.5.2\n\n[device 1]\r\nprobe1=A\\sB\\q\nprobe1=C=D\n";
        let sections = parse(text).unwrap();
        assert_eq!(sections.len(), 2);
        assert_eq!(sections[0].get("sigrok version"), Some("0.5.2"));
        assert_eq!(sections[0].get("probe1"), None);
        assert_eq!(sections[1].name, "device 1");
        assert_eq!(sections[1].entries().collect::<Vec<_>>(), [("probe1", "A B\\q"), ("probe1", "C=D")]);
    }

    #[test]
    fn a_line_that_is_nothing_is_named() {
        assert!(parse("[a]\nb=1\nnonsense\n").unwrap_err().starts_with("line 3"));
        assert!(parse("b=1\n").unwrap_err().starts_with("line 1"));
    }

    #[test]
    fn rates() {
        assert_eq!(parse_rate("100 MHz"), Some(1e8));
        assert_eq!(parse_rate("33.333333 MHz"), Some(33_333_333.0));
        assert_eq!(parse_rate("200000"), Some(2e5));
        assert_eq!(parse_rate("500k"), Some(5e5));
        assert_eq!(parse_rate(" 2 GHz "), Some(2e9));
        assert_eq!(parse_rate("-1 Hz"), Some(-1.0));
        for bad in ["", "MHz", "fast", "1e6", "inf", "nan", "1..2", "0x10"] {
            assert_eq!(parse_rate(bad), None, "{bad}");
        }
    }
}
