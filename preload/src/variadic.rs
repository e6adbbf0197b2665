//! The symbols of the variadic functions in `variadic.c`. A linker hides a C object's symbols in a Rust library, so each is
//! made here and jumps: every register and the stack are as the caller left them.

macro_rules! variadic {
    ($( $name:ident => $target:ident; )*) => { $(
        unsafe extern "C" {
            fn $target();
        }
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("jmp {}", sym $target);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("b {}", sym $target);
        }
    )* };
}

variadic! {
    execl => rsock_execl;
    execlp => rsock_execlp;
    execle => rsock_execle;
    dprintf => rsock_dprintf;
    __dprintf_chk => rsock_dprintf_chk;
}
