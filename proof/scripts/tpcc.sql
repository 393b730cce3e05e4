-- Tables of TPC-C with contents as the benchmark describes them: random strings of these lengths, four warehouses, a quarter of the
-- customers and of the stock.
\set warehouses 4
SELECT setseed(0.5);

-- A random string. The last argument is there so that each row gets another one.
CREATE FUNCTION letters(shortest int, longest int, row_number bigint) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT string_agg(
        substr('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789', 1 + floor(random() * 62)::int, 1), '')
    FROM generate_series(1, shortest + floor(random() * (longest - shortest + 1))::int + (row_number * 0)::int)
$$;
CREATE FUNCTION last_name(number int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT string_agg((ARRAY['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING'])
        [1 + (number / power) % 10], '') FROM unnest(ARRAY[100, 10, 1]) power
$$;

CREATE TABLE item (i_id int, i_im_id int, i_name varchar(24), i_price numeric(5,2), i_data varchar(50));
INSERT INTO item
SELECT i, 1 + random() * 9999, letters(14, 24, i), (1 + random() * 99)::numeric(5,2), letters(26, 50, i)
FROM generate_series(1, 100000) i;

CREATE TABLE stock (
    s_i_id int, s_w_id smallint, s_quantity smallint,
    s_dist_01 char(24), s_dist_02 char(24), s_dist_03 char(24), s_dist_04 char(24), s_dist_05 char(24),
    s_dist_06 char(24), s_dist_07 char(24), s_dist_08 char(24), s_dist_09 char(24), s_dist_10 char(24),
    s_ytd int, s_order_cnt smallint, s_remote_cnt smallint, s_data varchar(50));
INSERT INTO stock
SELECT i, w, 10 + random() * 90,
    letters(24, 24, i), letters(24, 24, i), letters(24, 24, i), letters(24, 24, i), letters(24, 24, i),
    letters(24, 24, i), letters(24, 24, i), letters(24, 24, i), letters(24, 24, i), letters(24, 24, i),
    0, 0, 0, letters(26, 50, i)
FROM generate_series(1, :warehouses) w, generate_series(1, 100000, 4) i;

CREATE TABLE customer (
    c_id int, c_d_id smallint, c_w_id smallint, c_first varchar(16), c_middle char(2), c_last varchar(16),
    c_street_1 varchar(20), c_street_2 varchar(20), c_city varchar(20), c_state char(2), c_zip char(9), c_phone char(16),
    c_since timestamptz, c_credit char(2), c_credit_lim numeric(12,2), c_discount numeric(4,4), c_balance numeric(12,2),
    c_ytd_payment numeric(12,2), c_payment_cnt int, c_delivery_cnt int, c_data varchar(500));
INSERT INTO customer
SELECT c, d, w, letters(8, 16, c), 'OE', last_name((random() * 999)::int), letters(10, 20, c), letters(10, 20, c),
    letters(10, 20, c), letters(2, 2, c), (random() * 9999)::int || '11111', (random() * 1e15)::bigint::text, now(),
    CASE WHEN random() < 0.1 THEN 'BC' ELSE 'GC' END, 50000, (random() * 0.5)::numeric(4,4), -10, 10, 1, 0,
    letters(300, 500, c)
FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000, 4) c;

CREATE TABLE orders (
    o_id int, o_d_id smallint, o_w_id smallint, o_c_id int, o_entry_d timestamptz, o_carrier_id smallint,
    o_ol_cnt smallint, o_all_local smallint);
INSERT INTO orders
SELECT o, d, w, 1 + random() * 2999, now() + o * interval '1 ms', CASE WHEN o < 2101 THEN 1 + random() * 9 END,
    5 + random() * 10, 1
FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) o;

CREATE TABLE order_line (
    ol_o_id int, ol_d_id smallint, ol_w_id smallint, ol_number smallint, ol_i_id int, ol_supply_w_id smallint,
    ol_delivery_d timestamptz, ol_quantity smallint, ol_amount numeric(6,2), ol_dist_info char(24));
INSERT INTO order_line
SELECT o_id, o_d_id, o_w_id, n, 1 + random() * 99999, o_w_id, CASE WHEN o_id < 2101 THEN o_entry_d END, 5,
    CASE WHEN o_id < 2101 THEN 0 ELSE (random() * 9999)::numeric(6,2) END, letters(24, 24, n)
FROM orders, generate_series(1, o_ol_cnt) n;

CREATE TABLE history AS
SELECT c_id h_c_id, c_d_id h_c_d_id, c_w_id h_c_w_id, c_d_id h_d_id, c_w_id h_w_id, now() h_date,
    10::numeric(6,2) h_amount, letters(12, 24, c_id) h_data
FROM customer;
CREATE TABLE new_order AS SELECT o_id no_o_id, o_d_id no_d_id, o_w_id no_w_id FROM orders WHERE o_id >= 2101;

ALTER TABLE item ADD PRIMARY KEY (i_id);
ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id);
ALTER TABLE customer ADD PRIMARY KEY (c_w_id, c_d_id, c_id);
CREATE INDEX ON customer (c_w_id, c_d_id, c_last, c_first);
ALTER TABLE orders ADD PRIMARY KEY (o_w_id, o_d_id, o_id);
CREATE INDEX ON orders (o_w_id, o_d_id, o_c_id, o_id);
ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number);
ALTER TABLE new_order ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id);
DROP FUNCTION letters;
DROP FUNCTION last_name;
