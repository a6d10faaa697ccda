// What Terraform's libvirt provider does when it creates a domain, up to the call of libvirt: its own functions write the XML
// and apply the XSLT. Arguments: the resource as JSON, a stylesheet, and where both XMLs go.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	_ "unsafe"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/dmacvicar/terraform-provider-libvirt/libvirt"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	testing "github.com/mitchellh/go-testing-interface"
	"libvirt.org/go/libvirtxml"
)

//go:linkname newDomainDef github.com/dmacvicar/terraform-provider-libvirt/libvirt.newDomainDef
func newDomainDef() libvirtxml.Domain

//go:linkname setVideo github.com/dmacvicar/terraform-provider-libvirt/libvirt.setVideo
func setVideo(d *schema.ResourceData, domain *libvirtxml.Domain)

//go:linkname setConsoles github.com/dmacvicar/terraform-provider-libvirt/libvirt.setConsoles
func setConsoles(d *schema.ResourceData, domain *libvirtxml.Domain) error

//go:linkname setDisks github.com/dmacvicar/terraform-provider-libvirt/libvirt.setDisks
func setDisks(d *schema.ResourceData, domain *libvirtxml.Domain, connection *golibvirt.Libvirt) error

//go:linkname xmlMarshallIndented github.com/dmacvicar/terraform-provider-libvirt/libvirt.xmlMarshallIndented
func xmlMarshallIndented(value interface{}) (string, error)

//go:linkname transformResourceXML github.com/dmacvicar/terraform-provider-libvirt/libvirt.transformResourceXML
func transformResourceXML(text string, d *schema.ResourceData) (string, error)

// As in resourceLibvirtDomainCreate. Interfaces are written here as setNetworkInterfaces writes them for a bridge: that
// function asks libvirt which networks there are.
func create(d *schema.ResourceData) (string, string, error) {
	domain := newDomainDef()
	domain.Name = d.Get("name").(string)
	domain.Type = d.Get("type").(string)
	domain.OS.Type.Arch = d.Get("arch").(string)
	domain.OS.Type.Machine = d.Get("machine").(string)
	if mode, ok := d.GetOk("cpu.0.mode"); ok {
		domain.CPU = &libvirtxml.DomainCPU{Mode: mode.(string)}
	}
	domain.Memory = &libvirtxml.DomainMemory{Value: uint(d.Get("memory").(int)), Unit: "MiB"}
	domain.VCPU = &libvirtxml.DomainVCPU{Value: uint(d.Get("vcpu").(int))}
	setVideo(d, &domain)
	if err := setConsoles(d, &domain); err != nil {
		return "", "", err
	}
	if err := setDisks(d, &domain, nil); err != nil {
		return "", "", err
	}
	for number := 0; number < d.Get("network_interface.#").(int); number++ {
		prefix := fmt.Sprintf("network_interface.%d", number)
		domain.Devices.Interfaces = append(domain.Devices.Interfaces, libvirtxml.DomainInterface{
			MAC:    &libvirtxml.DomainInterfaceMAC{Address: strings.ToUpper(d.Get(prefix + ".mac").(string))},
			Model:  &libvirtxml.DomainInterfaceModel{Type: "virtio"},
			Source: &libvirtxml.DomainInterfaceSource{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: d.Get(prefix + ".bridge").(string)}},
		})
	}
	before, err := xmlMarshallIndented(domain)
	if err != nil {
		return "", "", err
	}
	after, err := transformResourceXML(before, d)
	return before, after, err
}

func run() error {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	var resource map[string]interface{}
	if err := json.Unmarshal(text, &resource); err != nil {
		return err
	}
	stylesheet, err := os.ReadFile(os.Args[2])
	if err != nil {
		return err
	}
	resource["xml"] = []interface{}{map[string]interface{}{"xslt": string(stylesheet)}}
	kind := libvirt.Provider().ResourcesMap["libvirt_domain"]
	before, after, err := create(schema.TestResourceDataRaw(&testing.RuntimeT{}, kind.Schema, resource))
	if err != nil {
		return err
	}
	if err := os.WriteFile(os.Args[3], []byte(before), 0o600); err != nil {
		return err
	}
	return os.WriteFile(os.Args[4], []byte(after), 0o600)
}

func main() {
	log.SetOutput(io.Discard)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
