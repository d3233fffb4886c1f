// Command health tells what GitOps tools make of objects. Every line of the input is an object as JSON, every line of the
// output what kstatus, Argo CD and Flux say of it. The scripts and expressions are those of the folder that is named.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"
)

// health is what Argo CD expects of a script.
type health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

// answer is a line of the output.
type answer struct {
	Kstatus string `json:"kstatus"`
	Message string `json:"message"`
	Argo    health `json:"argo"`
	Flux    string `json:"flux"`
}

type tools struct {
	scripts     map[string]string
	expressions map[string]*cel.StatusEvaluator
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: health FOLDER")
	}
	tools, err := read(os.Args[1])
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(lines.Bytes()); err != nil {
			return fmt.Errorf("cannot read an object: %w", err)
		}
		said, err := tools.ask(object)
		if err != nil {
			return fmt.Errorf("cannot tell the health of %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
			return err
		}
	}
	return lines.Err()
}

// read takes the scripts and expressions from the files in which the tools take them.
func read(folder string) (*tools, error) {
	var config struct {
		Data map[string]string `json:"data"`
	}
	if err := readYAML(filepath.Join(folder, "argocd", "argocd-cm.yaml"), &config); err != nil {
		return nil, err
	}
	all := &tools{scripts: map[string]string{}, expressions: map[string]*cel.StatusEvaluator{}}
	for key, script := range config.Data {
		kind, found := strings.CutPrefix(key, "resource.customizations.health.")
		if !found {
			return nil, fmt.Errorf("argocd-cm.yaml holds %q, which is no health check", key)
		}
		all.scripts[kind] = script
	}
	var kustomization struct {
		Spec struct {
			Exprs []kustomize.CustomHealthCheck `json:"healthCheckExprs"`
		} `json:"spec"`
	}
	if err := readYAML(filepath.Join(folder, "flux", "kustomization.yaml"), &kustomization); err != nil {
		return nil, err
	}
	for _, check := range kustomization.Spec.Exprs {
		evaluator, err := cel.NewStatusEvaluator(&check.HealthCheckExpressions)
		if err != nil {
			return nil, fmt.Errorf("cannot read the expressions of %s: %w", check.Kind, err)
		}
		all.expressions[check.APIVersion+" "+check.Kind] = evaluator
	}
	return all, nil
}

func readYAML(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	return nil
}

func (t *tools) ask(object *unstructured.Unstructured) (*answer, error) {
	computed, err := status.Compute(object)
	if err != nil {
		return nil, fmt.Errorf("kstatus: %w", err)
	}
	said := &answer{Kstatus: computed.Status.String(), Message: computed.Message}
	kind := object.GroupVersionKind()
	script, found := t.scripts[kind.Group+"_"+kind.Kind]
	if !found {
		return nil, fmt.Errorf("Argo CD has no script for it")
	}
	argo, err := runScript(object, script)
	if err != nil {
		return nil, fmt.Errorf("Argo CD: %w", err)
	}
	said.Argo = *argo
	evaluator, found := t.expressions[object.GetAPIVersion()+" "+object.GetKind()]
	if !found {
		return nil, fmt.Errorf("Flux has no expressions for it")
	}
	flux, err := evaluator.Evaluate(context.Background(), object)
	if err != nil {
		return nil, fmt.Errorf("Flux: %w", err)
	}
	said.Flux = flux.Status.String()
	return said, nil
}

// runScript runs a script with what Argo CD gives it: the base and table libraries and one second.
func runScript(object *unstructured.Unstructured, script string) (*health, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}} {
		call := lua.P{Fn: state.NewFunction(library.open), NRet: 0, Protect: true}
		if err := state.CallByParam(call, lua.LString(library.name)); err != nil {
			return nil, err
		}
	}
	limit, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(limit)
	state.SetGlobal("obj", value(state, object.Object))
	if err := state.DoString(script); err != nil {
		return nil, err
	}
	table, isTable := state.Get(-1).(*lua.LTable)
	if !isTable {
		return nil, fmt.Errorf("the script returns no table")
	}
	text := func(key string) string { return lua.LVAsString(table.RawGetString(key)) }
	found := &health{Status: text("status"), Message: text("message")}
	switch found.Status {
	case "Healthy", "Progressing", "Degraded", "Suspended":
		return found, nil
	}
	return nil, fmt.Errorf("the script returns the status %q", found.Status)
}

// value is an object's value as scripts see it.
func value(state *lua.LState, from any) lua.LValue {
	switch from := from.(type) {
	case bool:
		return lua.LBool(from)
	case float64:
		return lua.LNumber(from)
	case int64:
		return lua.LNumber(from)
	case string:
		return lua.LString(from)
	case []any:
		list := state.CreateTable(len(from), 0)
		for _, item := range from {
			list.Append(value(state, item))
		}
		return list
	case map[string]any:
		table := state.CreateTable(0, len(from))
		for key, item := range from {
			table.RawSetH(lua.LString(key), value(state, item))
		}
		return table
	}
	return lua.LNil
}
