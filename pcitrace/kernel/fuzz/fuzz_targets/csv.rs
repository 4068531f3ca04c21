#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    pcitrace_kernel_fuzz::files::read_file(bytes);
});
