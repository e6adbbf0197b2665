//! How a function is exported.
//!
//! - `hook_cancel!`: cancellation points (pthreads(7)), and functions that a libc may lack. A cancelled thread unwinds
//!   out of the real function *through* ours, so both are `extern "C-unwind"`, and no `catch_unwind` is on the way. The
//!   gate, in brackets, says whether rsock has anything to do with the call; if not, the real function is jumped to.
//! - `hook_plain!`: all others, by redhook. It catches every unwinding in an `extern "C"` frame, which is why it cannot
//!   serve the first kind (the program would end with "exception not rethrown").
//! - `alias!`: a second name that libc gives one of the above.
//!
//! The body is written as if in an `unsafe` block: it is C's contract, for each function, that its arguments are what its
//! manual page asks for, and the body hands them on unchanged.
//!
//! Each use makes a module with the real functions, `real` or `plain`, and in it `warm`, which resolves all of them.

/// Exports cancellation points: see the module.
macro_rules! hook_cancel {
    ($( unsafe fn $name:ident ( $($v:ident : $t:ty),* $(,)? ) -> $r:ty $([ $gate:expr ])? $body:block )*) => {
        /// The real functions.
        pub mod real {
            #[allow(unused_imports)]
            use super::*;
            #[allow(non_upper_case_globals)]
            mod slot {
                $( pub static $name: $crate::real::Slot = $crate::real::Slot::new(); )*
            }
            const fn name(with_nul: &'static str) -> &'static ::core::ffi::CStr {
                match ::core::ffi::CStr::from_bytes_with_nul(with_nul.as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("not a C string"),
                }
            }
            $(
                #[inline(always)]
                pub unsafe fn $name( $($v : $t),* ) -> $r {
                    const NAME: &::core::ffi::CStr = name(concat!(stringify!($name), "\0"));
                    let address = slot::$name.get(NAME);
                    // SAFETY: libc's function of this name has this type; so has the stand-in for a missing one, as far
                    // as the calling convention of the platforms we build for can tell.
                    let function = unsafe {
                        ::core::mem::transmute::<*mut ::libc::c_void, unsafe extern "C-unwind" fn( $($t),* ) -> $r>(address)
                    };
                    // SAFETY: the caller keeps that function's contract.
                    unsafe { function( $($v),* ) }
                }
            )*
            /// Resolves all of them.
            pub fn warm() {
                $( slot::$name.get(const { name(concat!(stringify!($name), "\0")) }); )*
            }
        }
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name( $($v : $t),* ) -> $r {
                hook_cancel! { @body real::$name( $($v : $t),* ) -> $r $([ $gate ])? $body }
            }
        )*
    };
    // Gate closed: a jump. What is behind the gate has a frame of its own, so that the jump needs none.
    (@body real::$name:ident ( $($v:ident : $t:ty),* ) -> $r:ty [ $gate:expr ] $body:block) => {
        #[inline(never)]
        #[allow(unused_variables, reason = "some are for the gate only")]
        unsafe fn behind_the_gate( $($v : $t),* ) -> $r {
            // SAFETY: the caller keeps the contract of libc's function of this name.
            unsafe { $body }
        }
        // SAFETY: as above.
        unsafe {
            if $gate {
                behind_the_gate( $($v),* )
            } else {
                real::$name( $($v),* )
            }
        }
    };
    (@body real::$name:ident ( $($v:ident : $t:ty),* ) -> $r:ty $body:block) => {
        // SAFETY: the caller keeps the contract of libc's function of this name.
        unsafe { $body }
    };
}

/// Exports functions that are no cancellation points: see the module. `$mine` is callable from Rust.
#[cfg(target_env = "gnu")]
macro_rules! hook_plain {
    ($( unsafe fn $name:ident ( $($v:ident : $t:ty),* $(,)? ) -> $r:ty => $mine:ident $body:block )*) => {
        $(
            ::redhook::hook! {
                unsafe fn $name( $($v : $t),* ) -> $r => $mine {
                    // SAFETY: the caller keeps the contract of libc's function of this name.
                    unsafe { $body }
                }
            }
        )*
        /// The real functions.
        pub mod plain {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[inline(always)]
                pub unsafe fn $name( $($v : $t),* ) -> $r {
                    use super::$name as hooked;
                    // SAFETY: the caller keeps the real function's contract.
                    unsafe { ::redhook::real!(hooked)( $($v),* ) }
                }
            )*
            /// Resolves all of them.
            pub fn warm() {
                $( {
                    use super::$name as hooked;
                    let _resolved = ::redhook::real!(hooked);
                } )*
            }
        }
    };
}

/// redhook knows glibc only: elsewhere every function goes the other way.
#[cfg(not(target_env = "gnu"))]
macro_rules! hook_plain {
    ($( unsafe fn $name:ident ( $($v:ident : $t:ty),* $(,)? ) -> $r:ty => $mine:ident $body:block )*) => {
        hook_cancel! { $( unsafe fn $name( $($v : $t),* ) -> $r $body )* }
        pub use real as plain;
        $( use $name as $mine; )*
    };
}

/// Exports a second name for a function of ours.
macro_rules! alias {
    ($( unsafe fn $name:ident ( $($v:ident : $t:ty),* $(,)? ) -> $r:ty = $first:path; )*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name( $($v : $t),* ) -> $r {
                // SAFETY: the same function under another name.
                unsafe { $first( $($v),* ) }
            }
        )*
    };
}
