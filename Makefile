# Two commands are enough: `make up` runs an array with a demo volume, `make test` runs everything CI runs.
# Both install what is missing. The rest of the work is done by deploy/*.sh and `cargo xtask`.

export VAR ?= $(CURDIR)/var
export ISCSI ?= 127.0.0.1:3260
export API ?= 127.0.0.1:8470
export PROFILE ?= release

.PHONY: help up down clean-data demo test bench

help:
	@echo 'make up          install what is missing, build, start an array with a demo volume, say how to attach it'
	@echo 'make down        stop the array and keep its data'
	@echo 'make clean-data  stop the array and wipe its data'
	@echo 'make demo        PostgreSQL on a volume, its array killed twice under load, every commit accounted for'
	@echo 'make test        install what is missing and run everything CI runs'
	@echo 'make bench       measure against peers, about two hours'

up:
	@deploy/up.sh

down:
	@deploy/down.sh

clean-data: down
	@deploy/clean_data.sh

demo:
	@deploy/demo.sh

# Nothing is built twice there: what incremental builds keep would only fill the disk.
test:
	@CARGO_INCREMENTAL=0 deploy/with_tools.sh test cargo xtask ci

bench:
	@deploy/with_tools.sh test cargo xtask bench
