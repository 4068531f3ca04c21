//! One reader a format. `open` looks at the content, not at the name.

pub mod archive;
pub mod ini;
