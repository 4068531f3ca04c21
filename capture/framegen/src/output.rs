//! What the program says while it works: lines of text, or one JSON object a line.

use serde_json::{Value, json};
use std::io::Write;

/// Without what would move a terminal's cursor: names and texts of peers come from the wire.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    pub json: bool,
}

impl Output {
    /// Tell of an event: `fields` with --json, otherwise `text` (nothing if it is empty).
    pub fn event(&self, name: &str, fields: &Value, text: &str) {
        let line = if self.json {
            let mut object = json!({"event": name});
            if let (Some(object), Some(fields)) = (object.as_object_mut(), fields.as_object()) {
                object.extend(fields.clone());
            }
            object.to_string()
        } else if text.is_empty() {
            return;
        } else {
            printable(text)
        };
        // Whoever read this may be gone; the run does not depend on it.
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}
