# Thin verbs; each is one or two lines that can be typed by hand. `make help` lists them.
CARGO ?= cargo
RELEASE := --release --locked
# Always the whole workspace: with one set of features each dependency is compiled once, for programs and tests.
PROGRAMS := $(CARGO) build $(RELEASE) --workspace --bins
OLM_TEST := $(CARGO) run $(RELEASE) --quiet -p olm-test --bin olm-test --
# Recorded cases and real data, where they are present beside the checkout.
SHARED ?= ../shared
KUBECTL ?= kubectl
OVERLAY ?= manifests/base
# Where the files of a release will be found, for the manifest of krew.
URL ?= https://releases.olm.example
# The targets of `make dist`; `olm-test dist build` knows what is built for each.
DIST_TARGETS ?= x86_64-unknown-linux-musl x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu
MACOS_TARGETS := x86_64-apple-darwin aarch64-apple-darwin
# The same for `olm-test dist`: what an earlier build left for other targets gets into no release.
TARGETS = --targets $(subst $(empty) $(empty),$(comma),$(strip $(DIST_TARGETS)))
# The folder of Zig, whose compiler of C is for macOS too. Only builds for macOS need it, and put it there.
export ZIG ?= $(CURDIR)/target/zig/ziglang
# What `make reproducible` builds twice: the targets of the programs for this processor.
REPRODUCIBLE_TARGETS ?= x86_64-unknown-linux-gnu x86_64-unknown-linux-musl
empty :=
comma := ,
# The private key for `make release`, and what the provenance says about who builds from where.
KEY ?=
BUILDER ?=
REPOSITORY ?=
# Where the images are: the registry and the path above their names. There is no default.
PREFIX ?=
CREDENTIALS := $(if $(wildcard $(HOME)/.docker/config.json),--credentials $(HOME)/.docker/config.json)

.DEFAULT_GOAL := help
.PHONY: e2e-classic operators migrations mirrors faults run-classic rights browser screenshots docs fuzz help race run test test-long test-rest dist dist-test release dist-macos reproducible advisories chart licences conformance schemathesis e2e bench worst lint fmt crds images prefix push deploy undeploy clean minors signatures

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## a throwaway cluster, a registry, both managers and an installed extension; stays up until Ctrl-C
	$(PROGRAMS)
	$(OLM_TEST) run

run-classic: ## the same by OLM classic: a CatalogSource and a Subscription
	$(PROGRAMS)
	$(OLM_TEST) run --classic

test: ## everything that needs no root: unit, property and control-plane tests
	$(PROGRAMS)
	$(OLM_TEST) cluster build
	$(CARGO) test $(RELEASE) --workspace --no-run
	$(MAKE) --no-print-directory --keep-going --jobs=2 test-rest test-long

# Tests on a cluster mostly wait: half of them run beside all other tests, each file with servers of its own. What they
# print comes in one piece.
LONG := alerts classic_operator extension extension_safety faults managers
SUITES := $(wildcard */tests/*.rs crates/*/tests/*.rs) $(patsubst %/main.rs,%,$(wildcard */tests/*/main.rs crates/*/tests/*/main.rs))
REST := $(filter-out $(LONG),$(sort $(basename $(notdir $(SUITES)))))

test-long:
	@passed=0; $(CARGO) test $(RELEASE) --workspace --no-fail-fast $(LONG:%=--test %) >test-long.log 2>&1 || passed=$$?; cat test-long.log; exit $$passed

test-rest:
	$(CARGO) test $(RELEASE) --workspace --no-fail-fast --lib --bins $(REST:%=--test %)
	MAKEFLAGS= $(CARGO) test $(RELEASE) --workspace --doc

# A life of an extension, and what the API server checks by itself: policies in CEL, and definitions of two versions.
MINORS ?= 1.37 1.35
ON_A_MINOR := --test commands --test approval --test managers -- lifecycle:: own_upgrade:: admission::
# Objects as the API server admits, merges and collects them, and the move from OLM classic.
WHOLE_ON_A_MINOR := --test object_set --test migrate

minors: ## a life of an extension on API servers of the other minor versions MINORS, built from their Go modules
	$(PROGRAMS)
	$(foreach minor,$(MINORS),OLM_KUBERNETES=$(minor) $(CARGO) test $(RELEASE) --workspace --no-fail-fast $(ON_A_MINOR) &&) true
	$(foreach minor,$(MINORS),OLM_KUBERNETES=$(minor) $(CARGO) test $(RELEASE) --workspace --no-fail-fast $(WHOLE_ON_A_MINOR) &&) true

SECONDS_EACH ?= 60

fuzz: ## coverage-guided search for bytes that break a reader, SECONDS_EACH for each
	SHARED=$(SHARED) test/fuzz/run.sh $(SECONDS_EACH)

conformance: ## recorded cases and real data, where SHARED has them
	$(CARGO) run $(RELEASE) --quiet -p olm-test --bin conformance -- --done $(SHARED)/conformance/given
	sh test/realdata.sh $(SHARED)/realdata

rights: ## the roles that olm rbac prints, for each real bundle in SHARED: enough, and none too many
	$(PROGRAMS)
	sh test/realdata.sh $(SHARED)/realdata real-rights

mirrors: ## real catalogs in SHARED with all their images, from a registry to another: each package resolves there as before
	$(PROGRAMS)
	sh test/realdata.sh $(SHARED)/realdata real-mirrors

operators: ## each real bundle in SHARED by OLM classic, in every install mode: installed, upgraded, deleted
	$(PROGRAMS)
	sh test/realdata.sh $(SHARED)/realdata real-operators

migrations: ## real operators in SHARED from OLM classic to ClusterExtensions and back: nothing of them is written
	$(PROGRAMS)
	sh test/realdata.sh $(SHARED)/realdata real-migrations

schemathesis: ## the HTTP server against its own description; installs Schemathesis (PyPI) into the user's cache
	$(PROGRAMS)
	test/schemathesis.sh $${CARGO_TARGET_DIR:-target}/release/olm

# The pages of `olm ui`, on a throwaway cluster.
BROWSER_UI := test/browser.sh $${CARGO_TARGET_DIR:-target}/release/olm ui $(CARGO) test $(RELEASE) --workspace --test approval ui:: -- --nocapture

browser: ## the pages in a real browser: journeys, accessibility, hostile catalogs; needs node, npm and Debian's chromium
	$(PROGRAMS)
	test/browser.sh $${CARGO_TARGET_DIR:-target}/release/olm
	$(OLM_TEST) cluster build
	$(BROWSER_UI)

screenshots: ## pictures of the pages in both themes and widths, in dist/screenshots
	$(PROGRAMS)
	test/browser.sh $${CARGO_TARGET_DIR:-target}/release/olm screenshots dist/screenshots
	$(OLM_TEST) cluster build
	OUT=$(CURDIR)/dist/screenshots $(BROWSER_UI)

e2e: images ## a real node too (root): the managers as Pods from the manifests
	$(OLM_TEST) e2e

e2e-classic: images ## e2e, then OLM classic on that node: its programs as Pods, an operator by a Subscription
	$(OLM_TEST) e2e --classic

bench: ## prints time, memory and requests; needs no root
	$(PROGRAMS)
	$(OLM_TEST) bench

worst: ## prints the memory that catalogs take which are made to take as much as they can; needs no root
	$(PROGRAMS)
	$(OLM_TEST) worst

race: ## ROUNDS random steps (10000) against approvals; prints what was applied and fails where it was not approved as such
	$(PROGRAMS)
	RACE_ROUNDS=$${ROUNDS:-10000} $(CARGO) test $(RELEASE) --workspace --test approval race -- --nocapture

faults: ## a crash or another fault at every call of every workload; FAULTS_FROM=WORKLOAD:CALL continues, FAULTS_ONLY=WORKLOAD,… chooses
	$(PROGRAMS)
	FAULTS=all $(CARGO) test $(RELEASE) --workspace --test faults a_fault -- --nocapture
	FAULTS=all $(CARGO) test $(RELEASE) --workspace --test classic_faults -- --nocapture
	FAULTS=all $(CARGO) test $(RELEASE) --workspace --test migrate dies_at_a_write -- --nocapture

signatures: ## signatures of cosign 2 and 3, with keys and with identities of services on this machine, valid and damaged
	SIGNATURES=all $(CARGO) test $(RELEASE) --workspace --test signatures -- --nocapture

lint: ## format, clippy with warnings denied, dependency rules where cargo-deny is installed
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(RELEASE) --workspace --all-targets -- -D warnings
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --offline check bans licenses sources; else echo "cargo-deny is not installed: dependency rules not checked"; fi

advisories: ## known vulnerabilities of dependencies: by test/advisories.toml, and by the newest database where it can be reached
	$(OLM_TEST) advisories
	@if ! $(CARGO) deny --version >/dev/null 2>&1; then echo "cargo-deny is not installed: checked by test/advisories.toml alone"; \
	elif timeout 60 $(CARGO) deny fetch db; then $(CARGO) deny --offline check advisories; \
	else echo "the RustSec database cannot be reached: checked by test/advisories.toml alone"; fi

fmt: ## format the sources
	$(CARGO) fmt --all

crds: ## generate manifests/crds and manifests/classic/crds, and the pages of docs/reference about the API and the flags
	$(PROGRAMS)
	$(OLM_TEST) crds .

docs: ## the documentation as a site in dist/book; needs mdbook (cargo install mdbook)
	mdbook build docs

images: ## the programs on the cluster as OCI archives in dist/, without a container engine
	$(PROGRAMS)
	$(OLM_TEST) images build --out dist

dist: $(if $(filter $(MACOS_TARGETS),$(DIST_TARGETS)),$(ZIG)) ## the files of a release in dist/: olm for each system, images, manifests, chart, bills of materials, checksums
	$(PROGRAMS)
	rustup target add $(DIST_TARGETS)
	$(OLM_TEST) dist build $(TARGETS)
	$(OLM_TEST) dist release $(TARGETS) --kubectl $(KUBECTL) --url $(URL)

dist-macos: ## dist with olm for macOS too; installs Zig (PyPI) into target/zig
	$(MAKE) --no-print-directory dist DIST_TARGETS="$(DIST_TARGETS) $(MACOS_TARGETS)"

$(CURDIR)/target/zig/ziglang: test/zig/requirements.txt
	rm -rf target/zig
	python3 -m pip install --quiet --disable-pip-version-check --target target/zig --require-hashes --requirement $<
	touch $@

release: ## dist, signed with KEY, with its provenance; with PREFIX, the images are pushed and signed too
	@test -n "$(KEY)" || { echo "make: name the private key: make release KEY=../cosign.key" >&2; exit 2; }
	$(MAKE) --no-print-directory dist
	$(OLM_TEST) dist sign --key $(KEY) $(if $(BUILDER),--builder $(BUILDER)) $(if $(REPOSITORY),--repository $(REPOSITORY)) $(if $(PREFIX),--push $(PREFIX) $(CREDENTIALS))

reproducible: ## builds the programs for REPRODUCIBLE_TARGETS twice, in different folders, and compares them; takes long
	$(foreach target,$(REPRODUCIBLE_TARGETS),$(OLM_TEST) dist reproducible --target $(target) --scratch target/reproducible/$(target) &&) true

dist-test: ## tests of dist/; prints the time from an empty cluster to an installed operator
	OLM_DIST=dist $(CARGO) test $(RELEASE) --workspace --test dist -- --nocapture

chart: ## the Helm chart alone, in dist/
	$(OLM_TEST) dist chart --kubectl $(KUBECTL)

licences: ## the licences of what the programs contain, in dist/
	$(OLM_TEST) dist licences $(TARGETS)

prefix:
	@test -n "$(PREFIX)" || { echo "make: name the registry with the images, and the path above their names: make $(MAKECMDGOALS) PREFIX=registry.example/olmv1" >&2; exit 2; }

push: prefix images ## push the images to PREFIX, with the credentials of `docker login` where there are any
	$(OLM_TEST) images push $(PREFIX) $(CREDENTIALS)

deploy: prefix ## apply OVERLAY (manifests/base) with the images of PREFIX to the cluster of KUBECONFIG
	$(KUBECTL) kustomize $(OVERLAY) | sed 's|image: olmv1/|image: $(PREFIX)/|' | $(KUBECTL) apply --server-side -f -

undeploy: ## remove what deploy applied; extensions first, so that they leave nothing behind
	$(KUBECTL) delete clusterextensions.olm.operatorframework.io --all --wait --ignore-not-found
	$(KUBECTL) delete clusterobjectsets.olm.operatorframework.io,clustercatalogs.olm.operatorframework.io --all --wait --ignore-not-found
	$(KUBECTL) delete -k $(OVERLAY) --ignore-not-found

clean: ## remove build output
	$(CARGO) clean
	rm -rf dist
