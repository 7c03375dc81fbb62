package main_test

import (
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"
)

const (
	module   = "agentworker"
	services = "github.com/aws/aws-sdk-go-v2/service/"
)

// code is the functions' source in SSA form, without the libraries'.
type code struct {
	program *ssa.Program
	types   []types.Type // of the module, with and without pointer
}

func loadCode(t *testing.T) *code {
	t.Helper()
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedTypes |
			packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo,
		Dir: "..", BuildFlags: []string{"-tags=lambda.norpc"},
	}, packagesOf(t)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range loaded {
		for _, e := range p.Errors {
			t.Fatalf("%s: %v", p.PkgPath, e)
		}
	}
	program, built := ssautil.Packages(loaded, ssa.InstantiateGenerics)
	c := &code{program: program}
	for _, p := range built {
		p.Build()
		for _, name := range slices.Sorted(maps.Keys(p.Members)) {
			if named, ok := p.Members[name].(*ssa.Type); ok {
				if n, ok := named.Type().(*types.Named); ok && n.TypeParams().Len() == 0 {
					c.types = append(c.types, n, types.NewPointer(n))
				}
			}
		}
	}
	return c
}

// packagesOf are the functions' commands and what they import of the module.
func packagesOf(t *testing.T) []string {
	t.Helper()
	commands, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps, Dir: "..", BuildFlags: []string{"-tags=lambda.norpc"},
	}, "./functions/...")
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	packages.Visit(commands, nil, func(p *packages.Package) {
		if strings.HasPrefix(p.PkgPath, module+"/") {
			paths[p.PkgPath] = true
		}
	})
	return slices.Sorted(maps.Keys(paths))
}

// actions are the IAM actions that a command's code calls for, as service:Action.
func (c *code) actions(t *testing.T, command string) []string {
	t.Helper()
	w := walk{code: c, seen: map[*ssa.Function]bool{}, found: map[string]bool{}}
	p := c.program.ImportedPackage(command)
	if p == nil {
		t.Fatalf("no package %s", command)
	}
	w.reach(p.Func("main"))
	w.reach(p.Func("init"))
	for len(w.todo) > 0 {
		f := w.todo[0]
		w.todo = w.todo[1:]
		w.visit(f)
	}
	set := map[string]bool{}
	for call := range w.found {
		for _, action := range action(t, call) {
			set[action] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// walk follows a command's code from main on. A function is reached when it is called or referred to; a method of one of
// the module's types also when an interface is called that the type implements, or when a value of it is handed to a
// library as an interface that has the method.
type walk struct {
	*code
	seen  map[*ssa.Function]bool
	todo  []*ssa.Function
	found map[string]bool // "sqs ReceiveMessage", and "dynamodb/types Put" for a transaction's parts
}

func (w *walk) reach(f *ssa.Function) {
	if f == nil || w.seen[f] {
		return
	}
	w.seen[f] = true
	w.todo = append(w.todo, f)
}

func (w *walk) visit(f *ssa.Function) {
	for _, block := range f.Blocks {
		for _, instruction := range block.Instrs {
			for _, operand := range instruction.Operands(nil) {
				if g, ok := (*operand).(*ssa.Function); ok {
					w.reach(g)
				}
			}
			switch i := instruction.(type) {
			case ssa.CallInstruction:
				w.call(i.Common())
			case *ssa.MakeInterface:
				w.hand(i)
			case *ssa.Alloc:
				w.part(i)
			}
		}
	}
}

func (w *walk) call(call *ssa.CallCommon) {
	for parameter := range call.Signature().Params().Variables() {
		if service, name, ok := sdkType(parameter.Type()); ok && strings.HasSuffix(name, "Input") {
			w.found[service+" "+strings.TrimSuffix(name, "Input")] = true
		}
	}
	if call.IsInvoke() {
		w.implementations(call.Value.Type().Underlying().(*types.Interface), call.Method)
	}
}

func (w *walk) implementations(i *types.Interface, method *types.Func) {
	for _, t := range w.types {
		if types.Implements(t, i) {
			w.reach(w.program.LookupMethod(t, method.Pkg(), method.Name()))
		}
	}
}

// hand is a value that becomes an interface of a library, which then may call its methods.
func (w *walk) hand(i *ssa.MakeInterface) {
	if named, ok := i.Type().(*types.Named); ok && named.Obj().Pkg() != nil && strings.HasPrefix(named.Obj().Pkg().Path(), module+"/") {
		return // called by the module's own code, or not at all
	}
	interfaceType, ok := i.Type().Underlying().(*types.Interface)
	if !ok {
		return
	}
	if named := base(i.X.Type()); named == nil || named.Obj().Pkg() == nil || !strings.HasPrefix(named.Obj().Pkg().Path(), module+"/") {
		return
	}
	for method := range interfaceType.Methods() {
		w.reach(w.program.LookupMethod(i.X.Type(), method.Pkg(), method.Name()))
	}
	// Lambda's library takes any value as a handler, and calls its Invoke if it has one.
	if invoke := w.program.MethodSets.MethodSet(i.X.Type()).Lookup(nil, "Invoke"); interfaceType.NumMethods() == 0 && invoke != nil {
		w.reach(w.program.MethodValue(invoke))
	}
}

// part is an element of a transaction.
func (w *walk) part(i *ssa.Alloc) {
	if service, name, ok := sdkType(i.Type()); ok && service == "dynamodb/types" {
		w.found[service+" "+name] = true
	}
}

func base(t types.Type) *types.Named {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	named, _ := t.(*types.Named)
	return named
}

// sdkType is the service and the name of a type of the AWS SDK, or of a pointer to one.
func sdkType(t types.Type) (service, name string, ok bool) {
	named := base(t)
	if named == nil || named.Obj().Pkg() == nil {
		return "", "", false
	}
	service, ok = strings.CutPrefix(named.Obj().Pkg().Path(), services)
	return service, named.Obj().Name(), ok
}

// action translates an API call into the actions that IAM has for it.
// Source: AWS Service Authorization Reference, the pages of the services.
func action(t *testing.T, call string) []string {
	t.Helper()
	service, name, _ := strings.Cut(call, " ")
	switch service {
	case "dynamodb":
		switch name {
		case "TransactWriteItems": // no action of its own: those of its parts
			return nil
		case "TransactGetItems":
			return []string{"dynamodb:GetItem"}
		}
		return []string{"dynamodb:" + name}
	case "dynamodb/types":
		part, ok := map[string]string{"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}[name]
		if ok {
			return []string{"dynamodb:" + part}
		}
		return nil
	case "bedrockruntime":
		if name == "Converse" || name == "InvokeModel" {
			return []string{"bedrock:InvokeModel"}
		}
		return []string{"bedrock:InvokeModelWithResponseStream"}
	case "bedrockagentruntime":
		return []string{"bedrock:" + name}
	case "s3":
		if name == "ListObjectsV2" {
			return []string{"s3:ListBucket"}
		}
		return []string{"s3:" + name}
	case "secretsmanager", "ssm":
		return []string{service + ":" + name}
	case "sqs":
		return []string{"sqs:" + strings.TrimSuffix(name, "Batch")}
	case "sns":
		return []string{"sns:" + name}
	}
	t.Errorf("%s: no rule says which IAM action this call needs; add one", call)
	return nil
}
