#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if bytes.starts_with(b"GHDLwave\n") {
        pcitrace_kernel_fuzz::files::read_file(bytes);
    }
});
