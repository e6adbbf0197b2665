//! With feature `bindgen`: generates the bindings from the headers of librdmacm-dev and libibverbs-dev into `OUT_DIR`.
//! Without it there is nothing to do: src/bindings.rs, generated the same way, is checked in, so that a build needs
//! neither the headers nor libclang.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=wrapper.h");
    #[cfg(feature = "bindgen")]
    generate();
}

/// The functions rsock calls. All of them are in every rdma-core since 2017 (version 16).
#[cfg(feature = "bindgen")]
const FUNCTIONS: &[&str] = &[
    "ibv_ack_async_event",
    "ibv_ack_cq_events",
    "ibv_alloc_pd",
    "ibv_close_device",
    "ibv_create_comp_channel",
    "ibv_create_cq",
    "ibv_dealloc_pd",
    "ibv_dereg_mr",
    "ibv_destroy_comp_channel",
    "ibv_destroy_cq",
    "ibv_event_type_str",
    "ibv_free_device_list",
    "ibv_get_async_event",
    "ibv_get_cq_event",
    "ibv_get_device_list",
    "ibv_get_device_name",
    "ibv_open_device",
    "ibv_query_device",
    "ibv_query_gid",
    "ibv_query_port",
    "ibv_reg_mr",
    "ibv_wc_status_str",
    "rdma_accept",
    "rdma_ack_cm_event",
    "rdma_bind_addr",
    "rdma_connect",
    "rdma_create_event_channel",
    "rdma_create_id",
    "rdma_create_qp",
    "rdma_destroy_event_channel",
    "rdma_destroy_id",
    "rdma_destroy_qp",
    "rdma_disconnect",
    "rdma_event_str",
    "rdma_get_cm_event",
    "rdma_get_src_port",
    "rdma_listen",
    "rdma_reject",
    "rdma_resolve_addr",
    "rdma_resolve_route",
    "rdma_set_option",
];

#[cfg(feature = "bindgen")]
fn generate() {
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindgen::Builder::default()
        .header("wrapper.h")
        .rust_edition(bindgen::RustEdition::Edition2024)
        .rust_target(bindgen::RustTarget::stable(88, 0).expect("bindgen knows this version of Rust"))
        .allowlist_function(FUNCTIONS.join("|"))
        .allowlist_type("ibv_(wc|qp|port|event|node|transport)_(opcode|status|flags|type|state)|ibv_wr_opcode|ibv_mtu|ibv_port_attr")
        .allowlist_type("ibv_(send|access)_flags|rdma_cm_event_type|rdma_port_space")
        .blocklist_type("sockaddr|sockaddr_in|sockaddr_in6|sockaddr_storage|in_addr.*|in6_addr.*|pthread_.*|__pthread_.*|__atomic_wide_counter.*|timespec")
        .raw_line("use libc::{pthread_cond_t, pthread_mutex_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};")
        .default_enum_style(bindgen::EnumVariation::ModuleConsts)
        .bitfield_enum("ibv_access_flags|ibv_send_flags")
        .derive_default(true)
        .derive_debug(false)
        .generate_comments(false)
        .layout_tests(true)
        .use_core()
        .wrap_unsafe_ops(true)
        .dynamic_library_name("RdmaCore")
        .dynamic_link_require_all(true)
        .generate()
        .expect("librdmacm-dev and libibverbs-dev give the headers, libclang-dev the parser")
        .write_to_file(out.join("bindings.rs"))
        .expect("OUT_DIR is writable");
}
