//! The bindings against the C compiler: sizes, offsets and constants that we depend on, as a small C program prints them.

use core::mem::offset_of;
use rsock_rdma_sys::bindings::*;
use rsock_rdma_sys::inline;
use std::process::Command;

/// Pairs of a C expression and what Rust says about the same thing.
macro_rules! table {
    ($(size $size:ident;)* $(offset $type:ident . $field:ident;)* $(constant $name:ident = $module:ident;)*) => {
        &[
            $((concat!("sizeof(struct ", stringify!($size), ")"), size_of::<$size>() as u64),)*
            $((concat!("offsetof(struct ", stringify!($type), ",", stringify!($field), ")"), offset_of!($type, $field) as u64),)*
            $((stringify!($name), $module::$name as u64),)*
        ]
    };
}

const TABLE: &[(&str, u64)] = table! {
    size ibv_context; size ibv_context_ops; size ibv_qp; size ibv_cq; size ibv_mr; size ibv_comp_channel;
    size ibv_send_wr; size ibv_recv_wr; size ibv_sge; size ibv_wc; size ibv_qp_init_attr; size ibv_device_attr; size ibv_port_attr;
    size ibv_async_event; size rdma_cm_id; size rdma_cm_event; size rdma_conn_param; size rdma_event_channel;
    offset ibv_context . ops; offset ibv_context . async_fd;
    offset ibv_context_ops . poll_cq; offset ibv_context_ops . req_notify_cq; offset ibv_context_ops . post_send; offset ibv_context_ops . post_recv;
    offset ibv_cq . context; offset ibv_cq . cq_context; offset ibv_qp . context; offset ibv_qp . qp_num; offset ibv_mr . lkey; offset ibv_mr . rkey;
    offset ibv_comp_channel . fd; offset ibv_send_wr . wr_id; offset ibv_send_wr . next; offset ibv_send_wr . sg_list; offset ibv_send_wr . opcode;
    offset ibv_send_wr . send_flags; offset ibv_send_wr . wr; offset ibv_recv_wr . num_sge; offset ibv_wc . status; offset ibv_wc . opcode;
    offset ibv_wc . byte_len; offset ibv_wc . wc_flags; offset ibv_qp_init_attr . cap; offset ibv_qp_init_attr . qp_type;
    offset ibv_device_attr . max_qp_wr; offset ibv_device_attr . max_cqe; offset ibv_device_attr . max_mr_size;
    offset rdma_cm_id . verbs; offset rdma_cm_id . qp; offset rdma_cm_id . route; offset rdma_cm_id . context; offset rdma_cm_id . port_num;
    offset rdma_cm_event . id; offset rdma_cm_event . listen_id; offset rdma_cm_event . event; offset rdma_cm_event . status; offset rdma_cm_event . param;
    offset rdma_conn_param . private_data; offset rdma_conn_param . private_data_len; offset rdma_conn_param . rnr_retry_count;
    offset rdma_event_channel . fd;
    constant IBV_WR_RDMA_WRITE = ibv_wr_opcode; constant IBV_WR_RDMA_WRITE_WITH_IMM = ibv_wr_opcode; constant IBV_WR_SEND = ibv_wr_opcode;
    constant IBV_WC_RECV = ibv_wc_opcode; constant IBV_WC_RECV_RDMA_WITH_IMM = ibv_wc_opcode; constant IBV_WC_WITH_IMM = ibv_wc_flags;
    constant IBV_WC_WR_FLUSH_ERR = ibv_wc_status; constant IBV_QPT_RC = ibv_qp_type; constant IBV_TRANSPORT_IWARP = ibv_transport_type;
    constant RDMA_OPTION_ID = inline; constant RDMA_OPTION_ID_AFONLY = inline; constant RDMA_OPTION_ID_ACK_TIMEOUT = inline;
    constant IBV_LINK_LAYER_INFINIBAND = inline; constant RDMA_PS_TCP = rdma_port_space; constant RDMA_CM_EVENT_ESTABLISHED = rdma_cm_event_type; constant RDMA_CM_EVENT_DEVICE_REMOVAL = rdma_cm_event_type;
};

/// Needs a C compiler and the headers of librdmacm-dev; where they are missing the layout is covered by the assertions in
/// src/bindings.rs, which hold for the headers it was generated from.
#[test]
fn layout_is_that_of_the_headers() {
    let dir = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (dir.join("layout.c"), dir.join("layout"));
    let mut text = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include <rdma/rdma_cma.h>\n#include <infiniband/verbs.h>\nint main(void) {\n",
    );
    for (expression, _) in TABLE {
        text += &format!("printf(\"%llu\\n\", (unsigned long long)({expression}));\n");
    }
    text += "return 0; }\n";
    std::fs::write(&source, text).expect("the target directory is writable");
    let cc = Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output();
    match cc {
        Ok(output) if output.status.success() => {}
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("No such file") => {
            eprintln!("skipped: no rdma-core headers (librdmacm-dev, libibverbs-dev)");
            return;
        }
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            eprintln!("skipped: no C compiler ({error})");
            return;
        }
    }
    let output = Command::new(&program).output().expect("it was just built");
    let values = String::from_utf8(output.stdout).expect("numbers");
    assert_eq!(values.lines().count(), TABLE.len());
    for ((expression, ours), theirs) in TABLE.iter().zip(values.lines()) {
        assert_eq!(ours.to_string(), theirs, "{expression}");
    }
}
