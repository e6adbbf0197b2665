//! Links librsock.so so that it is set up first and never unloaded, and compiles the little that takes C.

fn main() {
    println!("cargo::rerun-if-changed=src/thread.c");
    println!("cargo::rerun-if-changed=src/variadic.c");
    // Other libraries' constructors call socket functions: ours must have run by then.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // Handlers registered with libc (atfork, exit) must not outlive the code.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    cc::Build::new()
        .file("src/thread.c")
        .file("src/variadic.c")
        .pic(true)
        .flag("-fvisibility=hidden")
        .flag("-fexceptions")
        .warnings(true)
        .extra_warnings(true)
        .compile("rsock_c");
}
