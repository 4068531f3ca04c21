#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    pcitrace_kernel_fuzz::read_file(bytes);
});
