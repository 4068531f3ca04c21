#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pcitrace_kernel_fuzz::bus::check_stream(input));
