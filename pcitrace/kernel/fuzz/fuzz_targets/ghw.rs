#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if bytes.starts_with(b"GHDLwave\n") {
        pcitrace_kernel_fuzz::read_file(bytes);
    }
});
