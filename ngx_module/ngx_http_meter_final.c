
/*
 * ngx_http_meter_final.c - which variables are known when headers leave.
 *
 *   merge of a route -> [final] -> record at the header, or with a slot
 *
 * A closed list: what stands here neither changes between the header filter
 * and the LOG phase, nor does caching it then show another value to those
 * who come later. Whatever is not here, a map, "set", a capture, $bytes_sent,
 * is late; that costs time but is never wrong.
 */


#include "ngx_http_meter_capture.h"


static ngx_uint_t ngx_http_meter_final_variable(ngx_conf_t *cf,
    ngx_str_t *name);
static ngx_uint_t ngx_http_meter_final_defined(ngx_conf_t *cf,
    ngx_str_t *name);


static ngx_str_t  ngx_http_meter_final_names[] = {
    ngx_string("args"),
    ngx_string("binary_remote_addr"),
    ngx_string("connection"),
    ngx_string("content_type"),
    ngx_string("document_uri"),
    ngx_string("host"),
    ngx_string("hostname"),
    ngx_string("http2"),
    ngx_string("http_cookie"),
    ngx_string("http_host"),
    ngx_string("http_referer"),
    ngx_string("http_user_agent"),
    ngx_string("http_via"),
    ngx_string("http_x_forwarded_for"),
    ngx_string("https"),
    ngx_string("is_args"),
    ngx_string("msec"),
    ngx_string("nginx_version"),
    ngx_string("pid"),
    ngx_string("proxy_protocol_addr"),
    ngx_string("proxy_protocol_port"),
    ngx_string("proxy_protocol_server_addr"),
    ngx_string("proxy_protocol_server_port"),
    ngx_string("query_string"),
    ngx_string("realip_remote_addr"),
    ngx_string("realip_remote_port"),
    ngx_string("remote_addr"),
    ngx_string("remote_port"),
    ngx_string("remote_user"),
    ngx_string("request"),
    ngx_string("request_id"),
    ngx_string("request_method"),
    ngx_string("request_uri"),
    ngx_string("scheme"),
    ngx_string("sent_http_cache_control"),
    ngx_string("sent_http_link"),
    ngx_string("server_addr"),
    ngx_string("server_name"),
    ngx_string("server_port"),
    ngx_string("server_protocol"),
    ngx_string("ssl_alpn_protocol"),
    ngx_string("ssl_cipher"),
    ngx_string("ssl_ciphers"),
    ngx_string("ssl_client_escaped_cert"),
    ngx_string("ssl_client_fingerprint"),
    ngx_string("ssl_client_i_dn"),
    ngx_string("ssl_client_i_dn_legacy"),
    ngx_string("ssl_client_s_dn"),
    ngx_string("ssl_client_s_dn_legacy"),
    ngx_string("ssl_client_serial"),
    ngx_string("ssl_client_v_end"),
    ngx_string("ssl_client_v_start"),
    ngx_string("ssl_client_verify"),
    ngx_string("ssl_curve"),
    ngx_string("ssl_curves"),
    ngx_string("ssl_early_data"),
    ngx_string("ssl_protocol"),
    ngx_string("ssl_server_name"),
    ngx_string("ssl_session_id"),
    ngx_string("ssl_session_reused"),
    ngx_string("status"),
    ngx_string("time_iso8601"),
    ngx_string("time_local"),
    ngx_string("uri"),
    ngx_null_string
};


/*
 * A name behind a prefix that somebody defined is a variable of its own: a
 * map, or one of nginx's that are made from the answer's other fields and
 * that the header filter proper still changes ($sent_http_location).
 */

static ngx_str_t  ngx_http_meter_final_prefixes[] = {
    ngx_string("arg_"),
    ngx_string("cookie_"),
    ngx_string("http_"),
    ngx_string("sent_http_"),
    ngx_null_string
};


/* the text has been compiled: its variables are well-formed */

ngx_uint_t
ngx_http_meter_final(ngx_conf_t *cf, ngx_str_t *text)
{
    u_char     *p, *last;
    ngx_str_t   name;

    p = text->data;
    last = p + text->len;

    while (p < last) {

        if (*p++ != '$') {
            continue;
        }

        if (p < last && *p == '{') {
            p++;
        }

        name.data = p;

        while (p < last
               && (*p == '_'
                   || (*p >= '0' && *p <= '9')
                   || (*p >= 'A' && *p <= 'Z')
                   || (*p >= 'a' && *p <= 'z')))
        {
            p++;
        }

        name.len = p - name.data;

        if (!ngx_http_meter_final_variable(cf, &name)) {
            return 0;
        }
    }

    return 1;
}


static ngx_uint_t
ngx_http_meter_final_variable(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_str_t  *known;

    for (known = ngx_http_meter_final_names; known->len; known++) {
        if (known->len == name->len
            && ngx_strncasecmp(known->data, name->data, name->len) == 0)
        {
            return 1;
        }
    }

    for (known = ngx_http_meter_final_prefixes; known->len; known++) {
        if (known->len < name->len
            && ngx_strncasecmp(known->data, name->data, known->len) == 0)
        {
            return !ngx_http_meter_final_defined(cf, name);
        }
    }

    return 0;
}


static ngx_uint_t
ngx_http_meter_final_defined(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_uint_t                  i;
    ngx_hash_key_t             *key;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    key = cmcf->variables_keys->keys.elts;

    for (i = 0; i < cmcf->variables_keys->keys.nelts; i++) {
        if (key[i].key.len == name->len
            && ngx_strncasecmp(key[i].key.data, name->data, name->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}
